"""``--initial-policy``: a run that begins with weights that were trained before."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import corridor
from counting import DEFAULTS, TASK, Bias, flags, train
from ppo_mask.checkpoints import load_policy
from ppo_mask.runner import main
from ppo_mask.training import AbstractCurriculum, Callback, Run, TrainState


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("trained"), 2).path


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("name", ["{path}", "known"])
def test_a_run_begins_with_the_weights(
    trained: Path, tmp_path: Path, name: str, seeds: int
) -> None:
    began: list[np.ndarray] = []

    class Look(Callback):
        def on_start(self, run: Run, state: TrainState) -> None:
            began.append(np.asarray(state.model.network.logits))  # pyright: ignore

    task = dataclasses.replace(TASK, policies={"known": trained}, callbacks=lambda _: [Look()])
    words = ("--initial-policy", name.format(path=trained), "--num-seeds", str(seeds))
    assert main(task, DEFAULTS, flags(tmp_path, 1, *words)) == 0
    network = load_policy(trained, [Bias]).model.network
    assert isinstance(network, Bias)
    np.testing.assert_array_equal(began, [network.logits] * seeds)


def test_what_copies_the_model_begins_with_the_weights(trained: Path, tmp_path: Path) -> None:
    """A curriculum's memory, such as the opponent in self-play, and the algorithm's own state."""

    class Copies(AbstractCurriculum):
        def init(self, model: Any) -> Any:
            return model

        def __call__(self, env: Any, progress: Any, memory: Any) -> Any:
            return env

    copied: list[Any] = []

    class Look(Callback):
        def on_start(self, run: Run, state: TrainState) -> None:
            copied.append(np.asarray(state.memory.network.logits))

    task = dataclasses.replace(TASK, curriculum=lambda _: Copies(), callbacks=lambda _: [Look()])
    assert main(task, DEFAULTS, flags(tmp_path, 1, "--initial-policy", str(trained))) == 0
    np.testing.assert_array_equal(copied[0], load_policy(trained, [Bias]).model.network.logits)  # pyright: ignore


def test_no_run_has_the_name_of_a_policy(trained: Path, tmp_path: Path, capsys) -> None:
    task = dataclasses.replace(TASK, policies={"known": trained})
    assert main(task, DEFAULTS, flags(tmp_path, 2, "--run-name", "known")) == 2
    assert "--run-name cannot be known: this program has such" in capsys.readouterr().err


def test_it_resumes_without_them(trained: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    shutil.copytree(trained, policy)
    fresh, begun = train(tmp_path / "a", 1), train(tmp_path, 1, f"--initial-policy={policy}")
    first, second = (load_policy(x.path, [Bias]).model.network for x in (fresh, begun))
    assert (first.logits != second.logits).all()  # pyright: ignore
    shutil.rmtree(policy)
    assert train(tmp_path, 2, "--resume", "latest").steps()[-1] == 2


def test_another_network_is_refused_in_one_line(trained: Path, tmp_path: Path, capsys) -> None:
    defaults = dataclasses.replace(DEFAULTS, environment=corridor.CorridorSettings())
    words = flags(tmp_path, 2, "--initial-policy", str(trained))
    assert main(corridor.TASK, defaults, words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "network=Bias(num_actions=3), " in line
    assert "network=MLPActorCritic(" in line
    assert not [*tmp_path.iterdir()]

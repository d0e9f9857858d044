"""``--initial-policy``: a run that begins with weights that were trained before."""

import dataclasses
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import corridor
from counting import DEFAULTS, TASK, Bias, CountingTrainer, flags, train
from ppo_mask.checkpoints import load_policy
from ppo_mask.ppo import PPOConfig
from ppo_mask.runner import NetworkSettings, main
from ppo_mask.runner._task import with_initial_policy
from ppo_mask.training import TrainState


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("trained"), 2).path


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("name", ["{path}", "known"])
def test_a_run_begins_with_the_weights(trained: Path, name: str, seeds: int) -> None:
    state = CountingTrainer(None, PPOConfig()).init(
        Bias(3, key=jax.random.key(9)), jax.random.key(0)
    )
    if seeds > 1:
        state: TrainState = jax.tree.map(lambda x: jnp.stack([x] * seeds), state)
    task = dataclasses.replace(TASK, policies={"known": trained})
    settings = NetworkSettings(initial_policy=name.format(path=trained))
    begun = with_initial_policy(task, settings, state)
    model = load_policy(trained, [Bias]).model
    assert isinstance(model, Bias)
    for logits in np.reshape(begun.model.logits, (-1, 3)):
        np.testing.assert_array_equal(logits, model.logits)
    assert jax.tree.map(jnp.shape, begun) == jax.tree.map(jnp.shape, state)
    assert with_initial_policy(task, NetworkSettings(), state) is state


def test_no_run_has_the_name_of_a_policy(trained: Path, tmp_path: Path, capsys) -> None:
    task = dataclasses.replace(TASK, policies={"known": trained})
    assert main(task, DEFAULTS, flags(tmp_path, 2, "--run-name", "known")) == 2
    assert "--run-name cannot be known: this program has such" in capsys.readouterr().err


def test_it_resumes_without_them(trained: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    shutil.copytree(trained, policy)
    fresh, begun = train(tmp_path / "a", 1), train(tmp_path, 1, f"--initial-policy={policy}")
    first, second = (load_policy(x.path, [Bias]).model for x in (fresh, begun))
    assert (first.logits != second.logits).all()  # pyright: ignore
    shutil.rmtree(policy)
    assert train(tmp_path, 2, "--resume", "latest").checkpoints.newest() == 2


def test_another_network_is_refused_in_one_line(trained: Path, tmp_path: Path, capsys) -> None:
    defaults = dataclasses.replace(DEFAULTS, environment=corridor.CorridorSettings())
    words = flags(tmp_path, 2, "--initial-policy", str(trained))
    assert main(corridor.TASK, defaults, words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Bias(num_actions=3); this run trains MLPActorCritic(" in line
    assert not [*tmp_path.iterdir()]

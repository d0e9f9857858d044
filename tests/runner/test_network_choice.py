"""``--network``: which of a program's networks a run trains."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import pytest
import yaml

from corridor import DEFAULTS, TASK, Corridor
from ppo_mask.checkpoints import load_policy
from ppo_mask.errors import RunError
from ppo_mask.networks import MLPActorCritic
from ppo_mask.runner import NetworkSettings, Task, default_network, main, make_plan


def normed(env: Any, network: NetworkSettings, key: jax.Array) -> MLPActorCritic:
    return MLPActorCritic(6, env.num_actions, network.hidden_dim, 1, True, key=key)


CHOICE = dataclasses.replace(TASK, networks={"plain": default_network, "normed": normed})


def run(parent: Path, *flags: str, task: Task[Any] = CHOICE) -> int:
    return main(task, DEFAULTS, ["--checkpoint-dir", str(parent), *flags])


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "normed"), [((), False), (("--network", "normed"), True)])
def test_a_run_trains_the_one_that_is_named_or_else_the_first(
    tmp_path: Path, flags: tuple[str, ...], normed: bool
) -> None:
    assert run(tmp_path, "--run-name", "run", "--total-timesteps", "32", *flags) == 0
    stored = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert stored["network"] == {
        "network": "normed" if normed else "plain",
        "hidden_dim": 8,
        "num_layers": 1,
        "shared_layers": 0,
        "initial_policy": None,
    }
    model = load_policy(tmp_path / "run").model
    assert isinstance(model, MLPActorCritic)
    assert model.layer_norm == normed


@pytest.mark.optimized
def test_so_do_several_seeds(tmp_path: Path) -> None:
    several = ("--run-name", "run", "--total-timesteps", "32", "--num-seeds", "2")
    assert run(tmp_path, *several, "--network", "normed") == 0
    for seed in (0, 1):
        model = load_policy(tmp_path / f"run-seed{seed}").model
        assert isinstance(model, MLPActorCritic)
        assert model.layer_norm


def test_an_unknown_name_is_refused_with_those_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--network", "norm") == 2
    assert capsys.readouterr() == ("", "error: --network must be plain or normed, got 'norm'\n")
    assert run(tmp_path, "--network", "normed", task=TASK) == 2
    assert "--network must be default, got 'normed'" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
    settings = NetworkSettings("norm")
    with pytest.raises(RunError, match="there is no network norm; there are plain, normed"):
        CHOICE.new_model(Corridor(6), settings, jax.random.key(0))


def test_help_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(CHOICE, DEFAULTS, ["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--network plain|normed which of the program's networks (default: plain)" in text
    assert "--precision float32|bfloat16" in text


def test_a_run_keeps_its_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--run-name", "run", "--total-timesteps", "32") == 0
    resume = ["--resume", str(tmp_path / "run"), "--total-timesteps", "64"]
    capsys.readouterr()
    assert main(CHOICE, DEFAULTS, [*resume, "--network", "normed"]) == 2
    assert "1 has network plain, this run asks for normed" in capsys.readouterr().err
    assert main(CHOICE, DEFAULTS, resume) == 0


@pytest.mark.parametrize(
    "text",
    ["network: normed\nlr: 0.1", "network:\n  network: normed\n", "network: {hidden-dim: 4}"],
)
def test_a_file_may_name_it_alone_or_in_the_group_of_the_same_name(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    network = make_plan(CHOICE.offer(DEFAULTS), ["--config", str(file)], "").config.network
    assert network.network == ("plain" if "hidden" in text else "normed")
    assert network.hidden_dim == (4 if "hidden" in text else 8)


def test_what_the_program_prefers_need_not_be_the_first() -> None:
    prefers = dataclasses.replace(DEFAULTS, network=NetworkSettings("normed"))
    assert make_plan(CHOICE.offer(prefers), [], "").config.network.network == "normed"


def test_one_network_and_several_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="make_model or networks, not both"):
        Task(TASK.make_env, normed, networks={"plain": default_network})

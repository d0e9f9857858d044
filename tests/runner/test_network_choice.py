"""``--network``: which of a program's networks a run trains."""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax
import pytest
import yaml

import ppo_mask as pm
from corridor import TASK, Corridor
from counting import DEFAULTS, TASK as COUNTING, Bias
from ppo_mask.checkpoints import load_policy
from ppo_mask.errors import RunError
from ppo_mask.runner import NetworkSettings, Task, default_network, main, make_plan
from ppo_mask.runner.commands._load import _networks

KEY = jax.random.key(0)


class Other(Bias):
    """A second network."""


CHOICE = dataclasses.replace(
    COUNTING,
    make_model=default_network,
    networks={
        "plain": lambda env, _, key: Bias(env.num_actions, key=key),
        "other": lambda env, _, key: Other(env.num_actions, key=key),
    },
)


def run(parent: Path, *flags: str) -> int:
    return main(CHOICE, DEFAULTS, ["--checkpoint-dir", str(parent), *flags])


def test_a_run_trains_the_one_that_is_named_or_else_the_first(tmp_path: Path) -> None:
    for name, network, more in (("plain", Bias, ()), ("other", Other, ("--network", "other"))):
        assert run(tmp_path, "--run-name", name, "--total-timesteps", "32", *more) == 0
        stored = yaml.safe_load((tmp_path / name / "config.yaml").read_text())
        assert stored["network"] == {
            "network": name,
            "hidden_dim": 8,
            "num_layers": 1,
            "shared_layers": 0,
            "activation": "tanh",
            "channels_first": None,
            "initial_policy": None,
        }
        assert type(load_policy(tmp_path / name, [Bias, Other]).model.network) is network


def test_an_unknown_name_is_refused_with_those_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--network", "othe") == 2
    assert capsys.readouterr() == ("", "error: --network must be plain or other, got 'othe'\n")
    assert not any(tmp_path.iterdir())
    settings = NetworkSettings("othe")
    with pytest.raises(RunError, match="there is no network othe; there are plain, other"):
        CHOICE.new_model(Corridor(6), settings, KEY)


def test_help_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(CHOICE, DEFAULTS, ["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--network plain|other which of the program's networks (default: plain)" in text
    assert "--precision float32|bfloat16" in text


@pytest.mark.parametrize(
    "text", ["network: other\nlr: 0.1", "network:\n  network: other\n", "network: {hidden-dim: 4}"]
)
def test_a_file_may_name_it_alone_or_in_the_group_of_the_same_name(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    network = make_plan(CHOICE.offer(DEFAULTS), ["--config", str(file)], "").config.network
    assert network.network == ("plain" if "hidden" in text else "other")
    assert network.hidden_dim == (4 if "hidden" in text else 8)


def test_what_the_program_prefers_need_not_be_the_first() -> None:
    prefers = dataclasses.replace(DEFAULTS, network=NetworkSettings("other"))
    assert make_plan(CHOICE.offer(prefers), [], "").config.network.network == "other"


def test_a_task_that_names_none_offers_a_gru() -> None:
    model = eqx.filter_eval_shape(TASK.new_model, Corridor(6), NetworkSettings("gru"), KEY)
    assert (type(model.network), model.network.hidden_dim) == (pm.GRUActorCritic, 256)


def test_a_network_that_does_not_fit_the_environment_is_in_nobodys_way() -> None:
    """A saved policy is read with the classes of those that fit."""
    prefers = TASK.offer(DEFAULTS)
    assert "sets" in prefers.network.offered
    assert pm.MLPActorCritic in _networks(TASK, Corridor(6), prefers)


def test_one_network_and_several_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="make_model or networks, not both"):
        Task(TASK.make_env, COUNTING.make_model, networks={"plain": default_network})

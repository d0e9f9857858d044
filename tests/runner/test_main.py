"""A run from its command line to the policy that it leaves."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from corridor import DEFAULTS, TASK, Corridor
from ppo_mask.callbacks import Saver, _evaluator
from ppo_mask.checkpoints import (
    CheckpointStore,
    RunFolder,
    load_policy,
    read_arrays,
    read_description,
)
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.errors import RunError
from ppo_mask.networks import AbstractActorCritic, MLPActorCritic, NormalizedActorCritic
from ppo_mask.ppo import PPOConfig
from ppo_mask.runner import NetworkSettings, default_network, enable_compilation_cache, main
from ppo_mask.training import Progress, Run, TrainState


def flags(parent: Path, *more: str) -> list[str]:
    return ["--checkpoint-dir", str(parent), "--run-name", "run", *more]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    parent = tmp_path_factory.mktemp("runs")
    more = ("--total-timesteps", "50_000", "--num-envs", "16", "--num-steps", "32", "--lr", "0.01")
    often = ("--eval-interval", "40", "--eval-episodes", "16", "--log-interval", "2")
    assert main(TASK, DEFAULTS, flags(parent, *more, *often, "--ent-coef", "0.01")) == 0
    return RunFolder(parent / "run")


def records(folder: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in folder.metrics.read_text().splitlines()]


@pytest.mark.optimized
def test_the_run_learns(trained: RunFolder) -> None:
    returns = [x["train/mean_episode_return"] for x in records(trained) if "train/lr" in x]
    assert returns[0] < 0.95
    assert returns[-1] > 0.97


@pytest.mark.parametrize(
    "error",
    [ValueError("a mask was all False"), jax.errors.JaxRuntimeError("out of memory\nmore of it")],
)
def test_an_evaluation_that_cannot_be_is_one_line(
    tmp_path: Path,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*args: Any, **more: Any) -> None:
        raise error

    monkeypatch.setattr(_evaluator, "evaluate", fail)
    assert main(TASK, DEFAULTS, flags(tmp_path, "--eval-interval", "3")) == 1
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error")]
    assert line.startswith(f"error: evaluation at update 3: {str(error).splitlines()[0]}; ")


def test_evaluations_are_logged_and_score_the_checkpoints(trained: RunFolder) -> None:
    evaluations = [x for x in records(trained) if "eval/mean_episode_return" in x]
    assert [x["update"] for x in evaluations] == [40, 80]
    assert evaluations[-1]["eval/num_episodes"] == 16
    assert evaluations[-1]["eval/stats/arrived"] == 1
    # Each was the best so far, so it was saved at once; the end has no evaluation of its own.
    scores = {
        step: read_description(trained.checkpoints.path(step))["score"]
        for step in trained.checkpoints.steps()
    }
    for line in evaluations:
        assert scores[line["update"]] == line["eval/mean_episode_return"]
    assert trained.checkpoints.best() == evaluations[-1]["update"]


def test_a_saved_policy_loads_with_one_call_and_knows_the_way(trained: RunFolder) -> None:
    newest = trained.checkpoints.path(trained.checkpoints.steps()[-1])
    mask = jnp.array([True, True, True])
    for policy in (load_policy(trained.path), load_policy(str(newest))):
        actions = [int(policy(jnp.eye(6)[i], mask)) for i in range(5)]
        assert actions == [2, 2, 2, 2, 2]
        assert int(policy(jnp.eye(6)[2], jnp.array([True, False, False]))) == 0
        assert isinstance(policy.model, MLPActorCritic)
        assert policy.model.hidden_dim == 8


def test_a_loaded_policy_sees_as_it_did_in_training(tmp_path: Path) -> None:
    more = ("--normalize-observations", "--normalize-rewards", "--total-timesteps", "320")
    assert main(TASK, DEFAULTS, flags(tmp_path, *more)) == 0
    folder = RunFolder(tmp_path / "run")
    model = load_policy(folder.path).model
    assert isinstance(model, NormalizedActorCritic)
    saved = read_arrays(folder.checkpoints.path(10))
    [moments] = model.moments
    assert moments.count == 320
    np.testing.assert_array_equal(moments.mean, saved["learner.model.moments.0.mean"])
    np.testing.assert_allclose(moments.mean.sum(), 1, rtol=1e-5)  # One cell at a time.
    mask = jnp.array([True, True, True])
    for i in range(5):
        seen = (jnp.eye(6)[i] - moments.mean) / moments.deviation
        probs, value = model(jnp.eye(6)[i], mask)[0].probs, model(jnp.eye(6)[i], mask)[1]
        expected, expected_value = model.network(seen, mask)
        np.testing.assert_allclose(probs, expected.probs, rtol=1e-5)
        np.testing.assert_allclose(value, expected_value, rtol=1e-5)


def test_a_policy_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no checkpoint"):
        load_policy(tmp_path / "nothing")


def test_training_that_breaks_off_is_one_line_and_keeps_the_last_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(TASK, DEFAULTS, flags(tmp_path, "--save-interval", "1")) == 0
    folder = RunFolder(tmp_path / "run")
    before = folder.checkpoints.steps()
    ill = ["--resume", str(folder.path), "--lr", "1e38", "--total-timesteps", "10_000"]
    capsys.readouterr()
    assert main(TASK, DEFAULTS, ill) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: update ")
    assert error.count("\n") == 1
    assert folder.checkpoints.steps()[: len(before)] == before[-3:]
    load_policy(folder.path)


class FakeStore(CheckpointStore):
    """Notes what it is asked to save."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"))
        self.saved: list[tuple[int, float | None, bool]] = []

    def clean(self) -> None:
        pass

    def save(
        self,
        step: int,
        state: Any,
        description: Any,
        score: float | None = None,
        evaluated: bool = False,
    ) -> Path:
        self.saved.append((step, score, evaluated))
        return self.path(step)


def drive(saver: Saver, updates: int, figures: dict[int, dict[str, float]]) -> None:
    run = Run(PPOConfig(num_envs=4, num_steps=8), 0, updates, [saver])
    state = object.__new__(TrainState)
    saver.on_start(run, state)
    for run.update in range(1, updates + 1):
        if run.update in figures:
            run.log(figures[run.update])
        saver.on_chunk(run, state, Progress(run.update, updates, run.update * 32, 1.0))
    saver.on_stop(run, state, "finished")


def test_a_description_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="float32 is not JSON serializable"):
        Saver(FakeStore(), {"lr": np.float32(1)})


def test_saving_by_updates_and_once_at_the_end() -> None:
    for updates, expected in ((7, [3, 6, 7]), (6, [3, 6])):
        store = FakeStore()
        drive(Saver(store, {}, every_updates=3), updates, {})
        assert [step for step, *_ in store.saved] == expected


def test_saving_by_time() -> None:
    for minutes, expected in ((1e-12, [1, 2, 3, 4]), (10.0, [4])):
        store = FakeStore()
        drive(Saver(store, {}, every_minutes=minutes), 4, {})
        assert [step for step, *_ in store.saved] == expected


def test_the_score_is_the_evaluation_or_else_the_mean_return() -> None:
    store = FakeStore()
    figures = {
        2: {"train/mean_episode_return": 1.0},
        3: {"train/entropy": 0.5},
        4: {"eval/mean_episode_return": 5.0},
        5: {"train/mean_episode_return": 2.0},
    }
    drive(Saver(store, {}, every_updates=1), 5, figures)
    plain = [(1, None), (2, 1.0), (3, 1.0), (5, 2.0)]
    assert store.saved == sorted([*((*each, False) for each in plain), (4, 5.0, True)])


def test_the_default_network_has_the_sizes_asked_for() -> None:
    key = jax.random.key(0)
    model = default_network(Corridor(9), NetworkSettings(hidden_dim=4, num_layers=3), key)
    assert model.hyperparameters == {
        "observation_size": 9,
        "num_actions": 3,
        "hidden_dim": 4,
        "num_layers": 3,
        "layer_norm": False,
        "policy_gain": 1.0,
        "shared_layers": 0,
    }


class Bias(AbstractActorCritic):
    """A network of one's own: it does not look."""

    logits: jax.Array

    def __init__(self, num_actions: int, *, key: Any) -> None:
        self.logits = jax.random.normal(key, (num_actions,))

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return {"num_actions": self.logits.shape[0]}

    def __call__(self, observation: Any, action_mask: Any) -> Any:
        from ppo_mask.networks import MaskedCategorical

        return MaskedCategorical(self.logits, action_mask), self.logits.sum()


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    task = dataclasses.replace(TASK, make_model=lambda env, _, key: Bias(env.num_actions, key=key))
    assert main(task, DEFAULTS, flags(tmp_path)) == 0
    with pytest.raises(RunError, match="is of the network Bias; give its class to load_policy"):
        load_policy(tmp_path / "run")
    policy = load_policy(tmp_path / "run", networks=[Bias])
    assert isinstance(policy.model, Bias)
    only = jnp.array([False, True, False])
    assert int(policy(jnp.zeros(6), only)) == 1


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (jnp.tanh, "option is <PjitFunction"),
        (np.dtype("int8"), "option is dtype('int8')"),
        (jnp.ones(2), "option is Array([1., 1.]"),
        (None, "do not make such a network again: TypeError: "),
    ],
    ids=["function", "dtype", "array", "lacking"],
)
def test_a_network_that_cannot_be_saved_is_refused(
    option: Any, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Unsavable(Bias):
        option: Any = eqx.field(static=True)

        def __init__(self, num_actions: int, option: Any = None, *, key: Any) -> None:
            super().__init__(num_actions, key=key)
            self.option = option

        @property
        def hyperparameters(self) -> dict[str, Any]:
            return {"num_actions": 3, "option": self.option} if self.option is not None else {}

    task = dataclasses.replace(TASK, make_model=lambda *given: Unsavable(3, option, key=given[2]))
    for more in ([], ["--num-seeds", "2"]):
        assert main(task, DEFAULTS, ["--checkpoint-dir", str(tmp_path), *more]) == 2
        printed = capsys.readouterr()
        assert printed.err.startswith("error: the hyperparameters of Unsavable ")
        assert (printed.err.count("\n"), printed.out) == (1, "")
        assert said in printed.err
    assert not list(tmp_path.iterdir())


def test_the_compilation_cache_is_on_unless_jax_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "jax_compilation_cache_dir"
    before = getattr(jax.config, name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        jax.config.update(name, None)
        enable_compilation_cache()
        assert getattr(jax.config, name) == str(tmp_path / "ppo_mask" / "jax")
        jax.config.update(name, "elsewhere")
        enable_compilation_cache()
        assert getattr(jax.config, name) == "elsewhere"
    finally:
        jax.config.update(name, before)


def test_two_seeds_are_two_runs_and_one_seed_is_one(tmp_path: Path) -> None:
    def losses(name: str, seed: str) -> Any:
        command = ["--checkpoint-dir", str(tmp_path), "--run-name", name, "--seed", seed]
        assert main(TASK, DEFAULTS, [*command, "--log-interval", "1"]) == 0
        return np.array([x["train/total_loss"] for x in records(RunFolder(tmp_path / name))])

    first = losses("a", "1")
    np.testing.assert_array_equal(first, losses("b", "1"))
    assert (first != losses("c", "2")).any()


class Weak(AbstractEnv[jax.Array]):
    """Its first state is of a weak type, its later ones are not."""

    num_actions: int = 3

    def reset(self, key: Any) -> tuple[Any, TimeStep]:
        return jnp.asarray(1) * 0 + jnp.where(True, 0, 1), Corridor().reset(key)[1]

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, TimeStep]:
        return jnp.int32(0), Corridor().step(key, jnp.int32(0), action)[1]


def test_training_is_compiled_once(tmp_path: Path, compiled: Callable[[], list[str]]) -> None:
    task = dataclasses.replace(TASK, make_env=lambda _: Weak(), metrics={}, console_columns={})
    for more in (("--run-name", "run"), ("--resume", "latest", "--total-timesteps", "640")):
        assert main(task, DEFAULTS, ["--checkpoint-dir", str(tmp_path), *more]) == 0
        # Resuming in the same process finds what is compiled; the options of a run do not differ.
        assert compiled().count("jit(run_chunk)") == 1

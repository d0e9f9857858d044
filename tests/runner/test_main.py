"""A run from its command line to the policy that it leaves."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import corridor
import counting
import ppo_mask as pm
from corridor import Corridor
from counting import Bias
from ppo_mask.callbacks import Evaluator, Profiler, Saver, _evaluator
from ppo_mask.checkpoints import Checkpoint, RunDir, load_policy
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPO
from ppo_mask.runner import NetworkSettings, default_network, enable_compilation_cache, main
from ppo_mask.training import Callback, Progress, Run, TrainingError, TrainState
from same_run import log

RETURN = "train/mean_episode_return"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    parent = tmp_path_factory.mktemp("runs")
    more = ("--total-timesteps", "50_000", "--num-envs", "16", "--num-steps", "32", "--lr", "0.01")
    often = ("--eval-interval", "40", "--eval-episodes", "16", "--log-interval", "2")
    where = ("--checkpoint-dir", str(parent), "--run-name", "run", "--ent-coef", "0.01")
    with jax.debug_key_reuse(True):
        assert main(corridor.TASK, corridor.DEFAULTS, [*where, *more, *often]) == 0
    return RunDir(parent / "run")


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
    words = counting.flags(tmp_path, 4, "--eval-interval", "3")
    assert main(counting.TASK, counting.DEFAULTS, words) == 1
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error")]
    assert line.startswith(f"error: evaluation at update 3: {str(error).splitlines()[0]}; ")


def test_evaluations_are_logged_and_score_the_checkpoints(trained: RunDir) -> None:
    evaluations = [x for x in log(trained) if "eval/mean_episode_return" in x]
    assert [x["update"] for x in evaluations] == [40, 80]
    assert evaluations[-1]["eval/num_episodes"] == 16
    assert evaluations[-1]["eval/stats/arrived"] == 1
    # Each was the best so far, so it was saved at once; the end has no evaluation of its own.
    scores = {step: trained.checkpoint(step).about["score"] for step in trained.steps()}
    for line in evaluations:
        assert scores[line["update"]] == line["eval/mean_episode_return"]
    best = trained.best()
    assert best is not None
    assert best.step == evaluations[-1]["update"]


def test_a_saved_policy_loads_with_one_call_and_knows_the_way(trained: RunDir) -> None:
    newest = trained.checkpoint().path
    mask = jnp.array([True, True, True])
    for policy in (load_policy(trained.path), load_policy(str(newest))):
        actions = [int(policy(jnp.eye(6)[i], mask)) for i in range(5)]
        assert actions == [2, 2, 2, 2, 2]
        assert int(policy(jnp.eye(6)[2], jnp.array([True, False, False]))) == 0
        network = policy.model.network
        assert isinstance(network, MLPActorCritic)
        assert network.hidden_dim == 8


class BreaksOff(Callback):
    """What a state that is not finite does."""

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        if run.update == 3:
            raise TrainingError("update 3: a loss is not finite")


def test_training_that_breaks_off_is_one_line_and_keeps_the_last_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = dataclasses.replace(counting.TASK, callbacks=lambda _: [BreaksOff()])
    words = counting.flags(tmp_path, 5, "--run-name", "run", "--save-interval", "1")
    assert main(task, counting.DEFAULTS, words) == 1
    folder = RunDir(tmp_path / "run")
    last = folder.path / "checkpoints/2"
    said = f"error: update 3: a loss is not finite; the last good checkpoint is {last}\n"
    assert capsys.readouterr().err == said
    assert folder.steps() == [1, 2]


class FakeDir(RunDir):
    def __init__(self) -> None:
        super().__init__("nowhere")
        self.saved: list[tuple[int, float | None, bool]] = []

    def clean(self) -> None:
        pass

    def save(
        self, step: int, state: Any, about: Any = None, score=None, evaluated=False
    ) -> Checkpoint:
        self.saved.append((step, score, evaluated))
        return Checkpoint(self.path, {})


def drive(saver: Saver, updates: int, figures: dict[int, dict[str, float]]) -> None:
    run = Run(PPO(num_envs=4, num_steps=8), 0, updates, [saver])
    state = object.__new__(TrainState)
    saver.on_start(run, state)
    for run.update in range(1, updates + 1):
        if run.update in figures:
            run.log(figures[run.update])
        saver.on_chunk(run, state, Progress(run.update, updates, run.update * 32, 1.0))
    saver.on_stop(run, state, "finished")


def test_a_description_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="float32 is not JSON serializable"):
        Saver(FakeDir(), {"lr": np.float32(1)})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Evaluator(Corridor(6), jax.random.key(0), 0), "every_updates must be at least 1"),
        (
            lambda: Evaluator(Corridor(6), jax.random.key(0), 1, num_episodes=0),
            "num_episodes must be at least 1, got 0",
        ),
        (lambda: Saver(FakeDir(), {}, every_updates=-1), "every_updates must be at least 1"),
        (lambda: Saver(FakeDir(), {}, every_minutes=0), "every_minutes must be more than 0"),
        (lambda: Profiler(Path("nowhere"), 0), "update must be at least 1, got 0"),
        (lambda: PPO().total_updates(-5), "total_timesteps must be at least 0, got -5"),
    ],
)
def test_impossible_intervals_are_refused_before_anything_runs(
    make: Callable[[], Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_numbers_of_numpy_are_as_good_as_pythons() -> None:
    config = PPO(np.int64(4), 4, gamma=1, anneal_lr=np.bool_(True))  # pyright: ignore
    assert config == PPO(4, 4, gamma=1.0, anneal_lr=True)
    assert (type(config.num_envs), type(config.gamma)) == (int, float)
    assert config.total_updates(np.int64(96)) == 6
    model = pm.network_for(Corridor(6), "mlp", key=jax.random.key(0), hidden_dim=np.int64(8))
    assert type(model.network.hidden_dim) is int
    store = FakeDir()
    drive(Saver(store, {}, 5, np.int32(3)), 6, {})
    assert [(step, type(step)) for step, *_ in store.saved] == [(3, int), (6, int)]


@pytest.mark.parametrize(
    ("every", "updates", "expected"),
    [
        ({"every_updates": 3}, 7, [3, 6, 7]),
        ({"every_updates": 3}, 6, [3, 6]),
        ({"every_minutes": 1e-12}, 4, [1, 2, 3, 4]),
        ({"every_minutes": 10.0}, 4, [4]),
    ],
)
def test_saving_by_updates_or_time_and_once_at_the_end(
    every: dict[str, Any], updates: int, expected: list[int]
) -> None:
    store = FakeDir()
    drive(Saver(store, {}, **every), updates, {})
    assert [step for step, *_ in store.saved] == expected


def test_the_score_is_the_evaluation_or_else_the_mean_return() -> None:
    store = FakeDir()
    figures = {
        2: {RETURN: 1.0},
        3: {"train/entropy": 0.5},
        4: {"eval/mean_episode_return": 5.0},
        5: {RETURN: 2.0},
    }
    drive(Saver(store, {}, every_updates=1), 5, figures)
    plain = [(1, None), (2, 1.0), (3, 1.0), (5, 2.0)]
    assert store.saved == sorted([*((*each, False) for each in plain), (4, 5.0, True)])


def test_a_line_of_short_episodes_only_has_no_score() -> None:
    store = FakeDir()
    figures = {
        update: {"train/num_episodes": n, "train/mean_episode_length": x, RETURN: -x}
        for update, (n, x) in enumerate([(3.0, 5.0), (1.0, 40.0), (1.0, 15.0), (2.0, 8.0)], start=1)
    }
    drive(Saver(store, {}, every_updates=1), 4, figures)
    assert [score for _, score, _ in store.saved] == [None, -40.0, -40.0, -8.0]


def test_the_default_network_has_the_sizes_asked_for() -> None:
    key = jax.random.key(0)
    model = default_network(Corridor(9), NetworkSettings(hidden_dim=4, num_layers=3), key)
    sizes = {"observation_size": 9, "num_actions": 3, "hidden_dim": 4, "num_layers": 3}
    assert sizes.items() <= model.network.hyperparameters.items()


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

    def unsavable(*given: Any) -> Unsavable:
        return Unsavable(3, option, key=given[2])

    task = dataclasses.replace(counting.TASK, make_model=unsavable)
    assert main(task, counting.DEFAULTS, ["--checkpoint-dir", str(tmp_path)]) == 2
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


def test_intervals_that_are_meant_in_steps_are_warned_of_and_the_run_still_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    in_steps = ("--save-interval", "3200", "--eval-interval", "32", "--save-interval-minutes=1e-9")
    run = counting.train(tmp_path, 4, *in_steps, "--log-interval", "1")
    assert run.steps()[-3:] == [2, 3, 4]
    save, evaluation = sorted(capsys.readouterr().err.splitlines(), reverse=True)
    assert save == (
        "warning: --save-interval 3200 counts updates, and the run has 4; 3,200 steps would be "
        "--save-interval 100"
    )
    assert evaluation.endswith("the run has 4; 32 steps would be --eval-interval 1")
    counting.train(tmp_path / "short", 2, "--save-interval", "10")
    assert capsys.readouterr().err == ""


def test_a_suffix_ends_a_given_name_and_a_generated_one(tmp_path: Path) -> None:
    for words in ((), (), ("--run-name=a",), ("--run-name=b", "--num-seeds=2", "--seed=4")):
        words = counting.flags(tmp_path, 1, "--run-suffix", "wide", *words)
        assert main(counting.TASK, counting.DEFAULTS, words) == 0
    first, second, *named = sorted(path.name for path in tmp_path.iterdir())
    assert (first[10:], second[10:]) == ("-001-wide", "-002-wide")
    assert named == ["a-wide", "b-wide-seed4", "b-wide-seed5"]
    again = counting.flags(tmp_path, 1, "--run-name=a", "--run-suffix=wide")
    assert main(counting.TASK, counting.DEFAULTS, again) == 2

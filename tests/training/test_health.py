"""Runs that go wrong: what is warned of, how often, and what stops them."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import counting
import programs
from corridor import DEFAULTS, TASK, Corridor
from ppo_mask.callbacks import HealthChecks
from ppo_mask.checkpoints import RunFolder, load_policy
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.ppo import PPOConfig, UpdateDiagnostics
from ppo_mask.runner import main
from ppo_mask.training import Run, TrainingError, all_healthy, describe


def warnings_of(lines: list[dict[str, float]]) -> list[tuple[int, str]]:
    """The number of the log line (from 1) and the beginning of each warning."""
    said: list[str] = []
    checks = HealthChecks(said.append)
    run = Run(PPOConfig(num_envs=4, num_steps=8), 0, 100, [checks])
    for run.update, values in enumerate(lines, start=1):
        run.log(values)
    assert all(("\n" not in text and ";" in text) or "look at" in text for text in said)
    words = [text.removeprefix("update ").split(": ", 1) for text in said]
    return [(int(update), text.split()[0]) for update, text in words]


def line(**figures: float) -> dict[str, float]:
    well = {"entropy": 1.2, "max_entropy": 1.5, "approx_kl": 0.02, "clip_frac": 0.1}
    return {f"train/{k}": v for k, v in {**well, "explained_variance": 0.5, **figures}.items()}


def test_a_healthy_run_is_left_in_peace() -> None:
    assert warnings_of([line()] * 20) == []
    assert warnings_of([line(entropy=0.151, approx_kl=0.06, clip_frac=0.3)] * 20) == []


@pytest.mark.parametrize(
    ("figure", "value"), [("entropy", 0.149), ("approx_kl", 0.061), ("clip_frac", 0.31)]
)
def test_each_onset_is_warned_of_once(figure: str, value: float) -> None:
    ill, well = line(**{figure: value}), line()
    assert warnings_of([well, ill, ill, ill]) == [(2, figure)]
    # It wavers: that is one onset.
    assert warnings_of([ill, well, ill, well, well, ill]) == [(1, figure)]
    # It recovers and falls again.
    assert warnings_of([ill, well, well, well, ill, ill]) == [(1, figure), (5, figure)]


def test_entropy_is_compared_with_what_the_masks_leave() -> None:
    # One action allowed: there is nothing to choose, and nothing to warn of.
    assert warnings_of([line(entropy=0.0, max_entropy=0.0)]) == []
    assert warnings_of([line(entropy=0.2, max_entropy=2.1)]) == [(1, "entropy")]


def test_entropy_must_stay_high_to_be_warned_of() -> None:
    high = line(entropy=1.3)
    assert warnings_of([*[high] * 29, line(), *[high] * 29]) == []
    assert warnings_of([high] * 60) == [(30, "entropy")]


def test_explained_variance_must_stay_low_to_be_warned_of() -> None:
    low, well = line(explained_variance=-0.1), line()
    assert warnings_of([*[low] * 4, well, *[low] * 4]) == []
    assert warnings_of([low] * 20) == [(5, "explained_variance")]
    zero = line(explained_variance=0.0)
    assert warnings_of([*[zero] * 6, *[well] * 3, *[zero] * 6]) == [
        (5, "explained_variance"),
        (14, "explained_variance"),
    ]


def test_a_figure_of_ones_own_that_is_not_finite_is_warned_of() -> None:
    bad = line() | {"stats/ratio": float("nan")}
    assert warnings_of([line(), bad, bad]) == [(2, "stats/ratio")]


def test_evaluations_are_no_log_lines_of_training() -> None:
    evaluation = {"eval/mean_episode_return": 1.0}
    low = line(explained_variance=-1.0)
    assert warnings_of([low, evaluation] * 5) == [(9, "explained_variance")]


@pytest.mark.optimized
def test_collapse_is_warned_of_in_a_real_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--ent-coef", "0", "--lr", "3e-3", "--total-timesteps", "40_000", "--log-interval", "2")
    batch = ("--num-envs", "16", "--num-steps", "32", "--no-tensorboard")
    assert main(TASK, DEFAULTS, ["--checkpoint-dir", str(tmp_path), *more, *batch]) == 0
    said = capsys.readouterr().err.splitlines()
    assert all(text.startswith("warning: update ") for text in said)
    onsets = [text.split(": ")[2].split()[0] for text in said]
    assert {"entropy", "approx_kl"} & set(onsets)
    lines = len((next(tmp_path.iterdir()) / "metrics.jsonl").read_text().splitlines())
    assert len(said) < lines / 3


def test_a_run_without_the_runner_is_watched_too() -> None:
    said = list[str]()
    checks = HealthChecks(said.append)
    programs.locks().train(9, callbacks=[checks], learning_rate=0.1, ent_coef=0.0)
    assert any("approx_kl" in text for text in said)


class Poisoned(AbstractEnv[Any]):
    """A corridor whose reward is NaN from the step on that follows so many others."""

    after: int
    inner: Corridor = Corridor()
    num_actions: int = 3

    def reset(self, key: Any) -> tuple[Any, TimeStep]:
        state, timestep = self.inner.reset(key)
        return (state, jnp.int32(0)), timestep

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, TimeStep]:
        state, steps = state
        _, timestep = self.inner.step(key, state, jnp.minimum(action, 1))
        reward = jnp.where(steps >= self.after, 0.0 / (steps * 0.0), timestep.reward)
        timestep = dataclasses.replace(timestep, reward=reward, terminated=jnp.array(False))
        return (state, steps + 1), timestep


@pytest.mark.slow
def test_a_nan_reward_stops_the_run_and_the_last_checkpoint_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = dataclasses.replace(
        TASK, make_env=lambda _: Poisoned(after=17), metrics={}, console_columns={}
    )
    often = ("--run-name", "run", "--save-interval", "1", "--log-interval", "1")
    more = ("--total-timesteps", "10_000", *often)
    assert main(task, DEFAULTS, ["--checkpoint-dir", str(tmp_path), *more]) == 1
    folder = RunFolder(tmp_path / "run")
    error = capsys.readouterr().err
    # Four steps an update: the eighteenth step is in the fifth.
    assert error.startswith("error: update 5: the environment gave a reward that is not finite")
    assert f"the last good checkpoint is {folder.checkpoints.path(4)}\n" in error
    assert folder.checkpoints.steps() == [2, 3, 4]
    assert len(folder.metrics.read_text().splitlines()) == 4
    policy = load_policy(folder.path)
    assert int(policy(jnp.eye(6)[0], jnp.array([False, True, False]))) == 1


class Breaks(counting.CountingTrainer):
    def train(self, state: Any, total_timesteps: int, **options: Any) -> Any:
        raise TrainingError("update 1: the glass fell over")


def test_a_run_that_breaks_before_it_was_saved_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = dataclasses.replace(counting.TASK, trainer=Breaks)
    assert main(task, counting.DEFAULTS, counting.flags(tmp_path, 3)) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: update 1: the glass fell over")
    assert "nothing had been saved yet" in error


def test_losses_and_parameters_are_named() -> None:
    model = programs.locks().start.model
    health, bad = all_healthy(model, UpdateDiagnostics.zeros()), jnp.array(False)
    assert describe(health, 2) is None
    assert "all False;" in str(describe(eqx.tree_at(lambda h: h.allowed, health, bad), 2))
    health = eqx.tree_at(lambda h: h.losses["vf_loss"], health, bad)
    assert str(describe(health, 2)).startswith("not finite: vf_loss; observations and rewards are")
    health = eqx.tree_at(lambda h: h.parameters["critic.0.bias"], health, bad)
    assert "vf_loss and 1 of 8 parameters (the first: critic.0.bias);" in str(describe(health, 2))
    # One of several runs side by side is enough.
    many = jax.tree.map(lambda x: jnp.stack([x, jnp.array(True)]), health)
    assert describe(many, 2) == describe(health, 2)
    # What comes from outside comes first.
    health = eqx.tree_at(lambda h: h.reward, health, bad)
    assert "gave a reward" in str(describe(health, 2))

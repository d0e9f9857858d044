"""Runs that go wrong: what is warned of, how often, and what stops them."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import pytest

import counting
import ppo_mask as pm
import programs
from ppo_mask.callbacks import HealthChecks
from ppo_mask.checkpoints import RunDir
from ppo_mask.ppo import PPO
from ppo_mask.runner import main
from ppo_mask.training import Callback, Run, TrainingError, TrainState
from ppo_mask.training._health import all_healthy, describe_health


def warnings_of(lines: list[dict[str, float]]) -> list[tuple[int, str]]:
    """The number of the log line (from 1) and the beginning of each warning."""
    said: list[str] = []
    checks = HealthChecks(said.append)
    run = Run(PPO(num_envs=4, num_steps=8), 0, 100, [checks])
    for run.update, values in enumerate(lines, start=1):
        run.log(values)
    assert all("\n" not in text and (";" in text or "look at" in text) for text in said)
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


@pytest.mark.parametrize(
    ("bad", "lines"), [({"entropy": 1.3}, 30), ({"explained_variance": 0.0}, 5)]
)
def test_some_figures_must_stay_bad_to_be_warned_of(bad: dict[str, float], lines: int) -> None:
    bad_line, name = line(**bad), next(iter(bad))
    assert warnings_of([*[bad_line] * (lines - 1), line(), *[bad_line] * (lines - 1)]) == []
    again = [*[bad_line] * (lines + 1), *[line()] * 3, *[bad_line] * (lines + 1)]
    assert warnings_of(again) == [(lines, name), (2 * lines + 4, name)]


@pytest.mark.parametrize(
    ("dull", "warned"),
    [
        ({"num_episodes": 0}, [(10, "no")]),
        ({"mean_episode_return": -200.0}, [(10, "mean_episode_return")]),
    ],
)
def test_a_run_in_which_nothing_happens_is_told_why_once(
    dull: dict[str, float], warned: list[tuple[int, str]]
) -> None:
    assert warnings_of([line(**dull)] * 40) == warned


def test_a_return_that_has_changed_may_stay() -> None:
    lost, won = line(mean_episode_return=0.0), line(mean_episode_return=1.0)
    assert warnings_of([*[lost] * 9, *[won] * 40]) == []


def test_a_figure_of_ones_own_that_is_not_finite_is_warned_of() -> None:
    bad = line() | {"stats/ratio": float("nan")}
    assert warnings_of([line(), bad, bad]) == [(2, "stats/ratio")]


def test_evaluations_are_no_log_lines_of_training() -> None:
    evaluation = {"eval/mean_episode_return": 1.0}
    low = line(explained_variance=-1.0)
    assert warnings_of([low, evaluation] * 5) == [(9, "explained_variance")]


def test_the_runner_watches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Says(Callback):
        def on_start(self, run: Run, state: Any) -> None:
            run.log({"stats/own": float("nan")})

    task = dataclasses.replace(counting.TASK, callbacks=lambda _: [Says()])
    assert main(task, counting.DEFAULTS, counting.flags(tmp_path, 1)) == 0
    assert "warning: update 0: stats/own is nan" in capsys.readouterr().err


def test_a_run_without_the_runner_is_watched_too() -> None:
    said = list[str]()
    checks = HealthChecks(said.append)
    programs.locks().train(9, callbacks=[checks], learning_rate=0.1, ent_coef=0.0)
    assert any("approx_kl" in text for text in said)


class Breaks(pm.Callback):
    def on_log(self, run: Run, record: Any) -> None:
        if run.update == 4:
            raise TrainingError("update 5: the glass fell over")


@pytest.mark.parametrize("saves", [True, False])
def test_a_run_that_breaks_says_what_is_saved(
    saves: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = dataclasses.replace(counting.TASK, callbacks=lambda _: [Breaks()])
    named = ("--run-name", "run", "--log-interval", "4", "--save-interval", "1" if saves else "9")
    assert main(task, counting.DEFAULTS, counting.flags(tmp_path, 9, *named)) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: update 5: the glass fell over")
    folder = RunDir(tmp_path / "run")
    kept = f"the last good checkpoint is {folder.path}/checkpoints/3\n"
    assert (kept if saves else "nothing had been saved yet") in error
    assert folder.steps() == ([1, 2, 3] if saves else [])


def test_losses_and_parameters_are_named() -> None:
    state = programs.locks().start
    healthy = all_healthy(state, 2)
    bad, nan = jnp.array(False), jnp.array(jnp.nan)

    def said(*parts: str, of: TrainState = state) -> str:
        places = lambda h: [getattr(h, part) for part in parts]  # noqa: E731
        health = eqx.tree_at(places, healthy, [bad] * len(parts))
        return describe_health(health, of, 2)

    assert "all False;" in said("allowed")
    broken = eqx.tree_at(lambda s: s.model.network.critic[0].bias, state, nan)
    where = 1 + state.totals.layout.learned.index("vf_loss")
    healthy = dataclasses.replace(healthy, losses=healthy.losses.at[where].set(False))
    named = (
        "not finite: vf_loss and 1 of 8 parameters (the first: network.critic.0.bias); observations"
    )
    assert said("parameters", of=broken).startswith(named)
    # What comes from outside comes first.
    assert "gave a reward" in said("reward", of=broken)

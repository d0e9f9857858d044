"""The examples that are no command of the README: they run, and those that train learn."""

from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optuna
import pytest

import ppo_mask as pm
from source import ROOT, load


@pytest.mark.optimized
def test_search_prunes_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], compiled: Callable[[], list[str]]
) -> None:
    search = load("examples/search_optuna.py")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = f"sqlite:///{tmp_path}/search.db"
    small = ["--steps", "10240", "--num-envs", "16", "--storage", storage]
    search.main([*small, "--trials", "9"])
    assert compiled().count("jit(run_chunk)") == 1
    study = search.main([*small, "--trials", "1"])
    assert len(study.trials) == 10
    states = [trial.state.name for trial in study.trials]
    assert states[:4] == ["COMPLETE"] * 4
    assert "PRUNED" in states
    for trial in study.trials:
        reports = list(trial.intermediate_values)
        assert reports == sorted(reports)
        assert (len(reports) == 20) == (trial.state.name == "COMPLETE")
    complete = [t.value for t in study.trials if t.state.name == "COMPLETE"]
    assert study.best_value == max(complete) > min(complete)
    assert f"best return {study.best_value:.3f}" in capsys.readouterr().out


def test_search_in_which_every_trial_fails_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    search = load("examples/search_optuna.py")

    def fail(*_: object) -> float:
        raise pm.TrainingError("update 1: the loss is not finite")

    monkeypatch.setattr(search, "objective", fail)
    search.main(["--trials", "2"])
    assert capsys.readouterr().out == "0 of 2 trials ran to their end\n"


@pytest.mark.optimized
def test_a_sweep_is_one_program(
    capsys: pytest.CaptureFixture[str], compiled: Callable[[], list[str]]
) -> None:
    sweep = load("examples/sweep.py")
    sweep.main()
    assert sum("train" in name for name in compiled()) == 1
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "18 agents, 18 of them with finite numbers throughout"
    assert len(lines) == 6
    assert all(float(line.split("return ")[1].split(",")[0]) > 7 for line in lines)


def test_minimal_example_has_ten_lines_of_code() -> None:
    _, _, code = (ROOT / "examples" / "minimal.py").read_text().split('"""')
    lines = [line for line in code.splitlines() if line and not line.startswith("#")]
    assert len(lines) <= 10


@pytest.mark.slow
def test_minimal_example_learns_and_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    minimal = load("examples/minimal.py")
    assert minimal.result.mean_return >= 7.5  # Without the mask, 1/15 at best; at random, 4.
    assert minimal.history["train/mean_episode_return"][0] < 7.5
    loaded, trained = pm.load_policy("policy").model, minimal.state.model
    jax.tree.map(np.testing.assert_array_equal, loaded, trained)
    assert f"then {minimal.result.mean_return:.1f}" in capsys.readouterr().out


@pytest.mark.slow
def test_example_from_scratch_learns() -> None:
    assert load("examples/from_scratch.py").main(updates=15) >= 7.5


@pytest.mark.slow
def test_example_from_scratch_matches_the_library() -> None:
    scratch = load("examples/from_scratch.py")
    model = pm.network_for(scratch.env, "mlp", hidden_dim=32, key=jax.random.key(0))
    state = pm.Trainer(scratch.env, scratch.config).init(model, jax.random.key(1))
    opt_state = scratch.optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    ours = scratch.update(model, opt_state, state.rollout, state.key)[0]
    trainer = pm.Trainer(scratch.env, scratch.config)
    theirs = eqx.filter_jit(trainer.update)(state, jnp.int32(1))[0].model
    for one, other, start in zip(*map(jax.tree.leaves, (ours, theirs, model)), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
        assert np.abs(other - start).max() > 1e-3

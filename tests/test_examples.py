"""The examples that are no command of the README run too, small."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import jax
import optuna
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_search_prunes_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    search = load("search_optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = f"sqlite:///{tmp_path}/search.db"
    small = ["--steps", "10240", "--num-envs", "16", "--storage", storage]
    with jax.log_compiles():
        search.main([*small, "--trials", "9"])
    compiled = [m for m in caplog.messages if "Compiling" in m and "run_chunk" in m]
    assert len(compiled) == 1
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

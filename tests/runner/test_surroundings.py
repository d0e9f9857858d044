"""What a run meets outside of itself: closed streams, encodings, homes, others at the same time."""

import contextlib
import dataclasses
import io
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import jax
import pytest

import counting
from corridor import Corridor
from counting import DEFAULTS, TASK, flags
from hackmatrix.cli import main as hackmatrix
from linux import only_linux
from ppo_mask.checkpoints import RunDir
from ppo_mask.checkpoints._runs import Runs
from ppo_mask.errors import RunError
from ppo_mask.runner import RunConfig, main, make_plan, setting
from ppo_mask.runner._streams import outliving_the_screen

# Without UTF-8 anywhere, as under cron.
PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}

SHORT = "--num-envs 4 --num-steps 4 --hidden-dim 8 --num-layers 1 --total-timesteps 640"
OFTEN = f"{SHORT} --log-interval 1 --save-interval 20 --no-tensorboard --run-name run"


def start(folder: Path, words: str, shell: str = '"$@"', **variables: str) -> str:
    """Runs the corridor in a folder, by a line of a shell; what came on standard error."""
    done = subprocess.run(
        ["bash", "-c", shell, "bash", sys.executable, counting.__file__, *words.split()],
        cwd=folder,
        env={**os.environ, "JAX_PLATFORMS": "cpu"} | variables,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "variables"),
    [
        ('set -o pipefail; "$@" | head -n 1 > /dev/null', {}),
        ('"$@" >&-', {}),
        pytest.param('"$@" > /dev/full', {}, marks=only_linux),
        ('"$@" > printed', PLAIN),
    ],
    ids=["reader gone", "closed", "full", "plain"],
)
def test_a_run_outlives_its_screen(tmp_path: Path, shell: str, variables: dict[str, str]) -> None:
    assert "Traceback" not in start(tmp_path, OFTEN, shell, **variables)
    folder = RunDir(tmp_path / "checkpoints" / "run")
    assert folder.steps()[-1] == 40
    assert len(folder.metrics.read_text().splitlines()) == 40


def test_commands_print_in_any_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "ü"
    assert main(TASK, DEFAULTS, flags(tmp_path, 1, "--run-name", run.name)) == 0
    for program, words, encoding in (
        (partial(main, TASK, DEFAULTS), ["inspect", str(run)], "ascii"),
        (hackmatrix, ["train", "--help"], "cp1252"),
    ):
        printed = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding))
        with contextlib.suppress(SystemExit):  # --help
            assert program(words) == 0
        sys.stdout.flush()
        assert len(printed.getvalue()) > 100


@pytest.mark.parametrize(
    "encoding", ["ascii", "utf-8", "cp437", "cp866", "iso8859-5", "koi8-r", "shift_jis"]
)
def test_what_an_encoding_lacks_is_printed_as_an_escape(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding))
    with outliving_the_screen():
        print("± À \udcff", flush=True)
    shown = printed.getvalue().decode(encoding)
    assert shown.replace("\\xb1", "±").replace("\\xc0", "À") == "± À \\udcff\n"


def test_a_user_without_a_home_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    cache = "jax_compilation_cache_dir"
    before = getattr(jax.config, cache)
    jax.config.update(cache, None)
    try:
        assert main(TASK, DEFAULTS, OFTEN.split()) == 0
        assert getattr(jax.config, cache) is None
    finally:
        jax.config.update(cache, before)


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text("checkpoint-dir: ~/runs\n")
    assert main(TASK, DEFAULTS, [*OFTEN.split(), "--config=~/run.yaml"]) == 0
    more = ["--resume=~/runs/run", "--total-timesteps", "960"]
    assert main(TASK, DEFAULTS, more) == 0
    assert RunDir(tmp_path / "runs" / "run").steps()[-1] == 60
    commands = ("inspect ~/runs/run", "inspect run --checkpoint-dir=~/runs")
    for command in commands:
        assert main(TASK, DEFAULTS, command.split()) == 0
    assert not (tmp_path / "~").exists()


@dataclasses.dataclass(frozen=True)
class Settings:
    levels: Path = setting(Path("levels"), "where they are")


def test_a_tilde_in_a_programs_settings_is_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    run = dataclasses.replace(DEFAULTS.run, checkpoint_dir="~/runs")
    config = RunConfig(environment=Settings(), run=run)
    plan = make_plan(config, ["--levels=~/levels"], "")
    assert plan.config.environment.levels == tmp_path / "levels"
    assert plan.runs.folder == tmp_path / "runs"


def test_an_environment_that_changes_the_working_directory_takes_no_run_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_env(settings: Settings) -> Corridor:
        os.chdir(tmp_path / "simulator")
        return Corridor()

    (tmp_path / "simulator").mkdir()
    monkeypatch.chdir(tmp_path)
    task = dataclasses.replace(TASK, make_env=make_env, callbacks=lambda _: ())
    assert main(task, DEFAULTS, OFTEN.split()) == 0
    folder = RunDir(tmp_path / "checkpoints" / "run")
    assert folder.steps()[-1] == 40
    assert not list((tmp_path / "simulator").iterdir())


@pytest.mark.usefixtures("today")
def test_runs_that_start_at_once_take_names_of_their_own(tmp_path: Path) -> None:
    gate = threading.Barrier(6)

    def begin(_: int) -> str:
        gate.wait()
        # All have looked before any has made its folder.
        (folder,) = Runs(tmp_path).create(None, None, [None])
        return folder.path.name[-3:]

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(begin, range(6))) == [f"00{n}" for n in range(1, 7)]


def test_runs_of_a_day_are_numbered_beyond_a_thousand(tmp_path: Path, today: str) -> None:
    for name in (f"{today}-007", f"{today}-1000-lr"):
        (tmp_path / name).mkdir()
    (folder,) = Runs(tmp_path).create(None, None, ["b"])
    assert folder.path.name == f"{today}-1001-b"
    (folder.path / "something").touch()  # An empty folder would do.
    with pytest.raises(RunError, match=r"there is a run .*-1001-b already"):
        Runs(tmp_path).create(f"{today}-1001", None, ["b"])


def test_a_missing_platform_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr(jax, "devices", Mock(side_effect=RuntimeError("no cuda\nat all")))
    for words in (["train"], ["evaluate", "--policy=random"]):
        assert hackmatrix(words) == 2
        line = capsys.readouterr().err
        assert line.startswith("error: JAX found no device with JAX_PLATFORMS cuda (no cuda); ")
        assert line.count("\n") == 1

"""A run that is stopped, killed or wound back resumes as if nothing had happened."""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import jax
import pytest

import marathon
from corridor import DEFAULTS, TASK, Corridor
from ppo_mask.checkpoints import RunFolder, copy_run, read_arrays, read_description
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPOConfig
from ppo_mask.runner import main
from ppo_mask.training import Callback, Progress, Run, Trainer, TrainState, _loop as loop
from same_run import assert_same_run, log, newest, tensorboard_points
from waiting import wait_until

CORRIDOR = Path(__file__).parents[1] / "support" / "corridor.py"
MARATHON = Path(__file__).parents[1] / "support" / "marathon.py"
STEPS_PER_UPDATE = 32


def flags(parent: Path, updates: int, *more: str) -> list[str]:
    total = str(updates * STEPS_PER_UPDATE)
    return ["--checkpoint-dir", str(parent), "--total-timesteps", total, *more]


def train(parent: Path, updates: int, *more: str) -> RunFolder:
    assert main(TASK, DEFAULTS, flags(parent, updates, *more)) == 0
    return RunFolder(parent / "run")


OFTEN = ("--log-interval", "3", "--save-interval", "2", "--eval-interval", "4")
OFTEN += ("--eval-episodes", "2", "--length", "3", "--run-name", "run")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return train(tmp_path_factory.mktemp("whole"), 12, *OFTEN)


@pytest.mark.parametrize("half", [6, 7, 8])
def test_stopping_and_resuming_changes_no_bit(
    tmp_path: Path, uninterrupted: RunFolder, half: int
) -> None:
    # After 7 and 8 updates the last line is partial: the one after 9 takes its place.
    folder = train(tmp_path, half, *OFTEN)
    assert [x["update"] for x in log(folder) if "train/lr" in x][-1] == half
    resumed = train(tmp_path, 12, "--resume", "latest")
    assert_same_run(resumed, uninterrupted)


@pytest.mark.optimized
@pytest.mark.parametrize(
    "more",
    [
        "--normalize-observations --normalize-rewards",
        "--precision bfloat16 --gradient-accumulation 2 --target-kl 1e-5",
    ],
)
def test_annealing_and_statistics_are_resumed_from_where_they_were(
    tmp_path: Path, more: str
) -> None:
    often = (*OFTEN, "--anneal-lr", *more.split())
    whole = train(tmp_path / "whole", 12, *often)
    cut = train(tmp_path / "cut", 12, *often)
    train_on = ["--resume", str(cut.checkpoints.path(8)), "--rewind"]
    assert main(TASK, DEFAULTS, train_on) == 0
    assert_same_run(cut, whole)


def test_a_checkpoint_says_what_it_is(uninterrupted: RunFolder) -> None:
    description = read_description(newest(uninterrupted))
    assert description["update"] == 12
    assert description["env_steps"] == 12 * STEPS_PER_UPDATE
    assert description["config"]["environment"] == {"length": 3}
    assert description["architecture"]["network"] == "MLPActorCritic"
    assert "jax" in description["versions"]


def test_an_older_checkpoint_needs_rewind(
    tmp_path: Path, uninterrupted: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(tmp_path, 12, *OFTEN)
    before = log(folder)
    older = str(folder.checkpoints.path(10))
    assert main(TASK, DEFAULTS, ["--resume", older]) == 2
    assert "add --rewind" in capsys.readouterr().err
    assert log(folder) == before
    assert main(TASK, DEFAULTS, ["--resume", older, "--rewind"]) == 0
    assert_same_run(folder, uninterrupted)


def test_safe_settings_may_change_and_are_stored(tmp_path: Path) -> None:
    folder = train(tmp_path, 3, *OFTEN)
    train(tmp_path, 6, "--resume", "latest", "--lr", "0.5", "--no-tensorboard")
    assert "lr: 0.5" in folder.config.read_text()
    assert read_description(newest(folder))["config"]["training"]["lr"] == 0.5
    rates = [x["train/lr"] for x in log(folder) if "train/lr" in x]
    assert rates == [pytest.approx(3e-3), 0.5]
    assert {step for step, _ in tensorboard_points(folder)} == {96}


def test_a_sink_that_was_turned_off_is_filled_up(tmp_path: Path, uninterrupted: RunFolder) -> None:
    folder = train(tmp_path, 6, *OFTEN)
    train(tmp_path, 9, "--resume", "latest", "--no-tensorboard")
    train(tmp_path, 12, "--resume", "latest", "--tensorboard")
    assert_same_run(folder, uninterrupted)


def test_a_finished_run_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = train(tmp_path, 2, *OFTEN)
    before = log(folder)
    train(tmp_path, 2, "--resume", "latest")
    assert "nothing to do" in capsys.readouterr().out
    assert log(folder) == before


def test_a_command_line_may_be_run_again_with_resume(
    tmp_path: Path, uninterrupted: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = flags(Path("ck"), 12, *OFTEN, "--run-suffix", "b", "--seed", "0")
    assert main(TASK, DEFAULTS, [*command, "--total-timesteps", "192"]) == 0
    assert main(TASK, DEFAULTS, [*command, "--resume", "ck/run-b"]) == 0
    assert_same_run(RunFolder(tmp_path / "ck" / "run-b"), uninterrupted)
    assert main(TASK, DEFAULTS, [*command, "--resume", "latest"]) == 0
    assert [path.name for path in (tmp_path / "ck").iterdir()] == ["run-b"]


def test_auto_tune_may_be_given_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, 2, *OFTEN)
    train(tmp_path, 3, "--resume", "latest", "--auto-tune")
    assert "--auto-tune has no effect with --resume" in capsys.readouterr().err


def contents(folder: RunFolder) -> dict[str, bytes]:
    files = (path for path in folder.path.rglob("*") if path.is_file())
    return {str(path.relative_to(folder.path)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("more", "name"),
    [((), "run"), (("--run-name", "new", "--rewind"), "new"), (("--run-suffix", "b"), "run-b")],
)
def test_a_run_is_resumed_in_another_folder(
    tmp_path: Path, uninterrupted: RunFolder, more: tuple[str, ...], name: str
) -> None:
    old = train(tmp_path / "old", 12, *OFTEN)
    (old.path / "wandb.json").write_text("{}")
    before = contents(old)
    parent = tmp_path / "new" / "place"
    older = str(old.checkpoints.path(10))
    assert main(TASK, DEFAULTS, flags(parent, 12, "--resume", older, *more)) == 0
    assert contents(old) == before
    assert [path.name for path in parent.iterdir()] == [name]
    new = RunFolder(parent / name)
    assert_same_run(new, uninterrupted)
    assert 10 in new.checkpoints.steps()
    assert not (new.path / "wandb.json").exists()


def test_a_copy_of_a_run_is_whole_or_not_there(
    tmp_path: Path, uninterrupted: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """The process is gone."""

    left, path = 0, tmp_path / "run"

    def counted(operation: Callable[..., object]) -> Callable[..., object]:
        def act(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return operation(*args, **kwargs)

        return act

    names = ((shutil, "copy2"), (shutil, "copytree"), (shutil, "rmtree"), (Path, "rename"))
    for owner, name in names:
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    for n in itertools.count():
        left = n
        try:
            copy_run(uninterrupted, 12, path)
        except Killed:
            assert list(tmp_path.glob("*/config.yaml")) in ([], [path / "config.yaml"])
        if path.exists():
            break
    assert n > 5
    assert contents(RunFolder(path)) == contents(uninterrupted)


def start(parent: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(CORRIDOR), *flags(parent, 1_000_000, *more)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_checkpoint(folder: RunFolder, after: int, process: subprocess.Popen[str]) -> None:
    wait_until(lambda: any(step > after for step in folder.checkpoints.steps()), [process])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_ends_in_good_order(
    tmp_path: Path,
    number: signal.Signals,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = RunFolder(tmp_path / "run")
    # A signal that is ignored, as SIGHUP is under nohup, would stay so.
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_DFL)

    def send_when_under_way() -> None:
        while not folder.checkpoints.steps():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=send_when_under_way, daemon=True).start()
    often = ("--run-name", "run", "--log-interval", "5", "--save-interval", "20")
    assert main(TASK, DEFAULTS, flags(tmp_path, 1_000_000, *often)) == 128 + number
    last = folder.checkpoints.steps()[-1]
    printed = capfd.readouterr()
    assert f"{number.name} after {last:,} updates" in printed.out
    assert printed.err.count("press Ctrl+C again to end at once, without saving\n") == 1
    assert read_description(newest(folder))["update"] == last
    assert log(folder)[-1]["update"] == last // 5 * 5


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False])
def test_the_first_process_says_what_a_second_signal_does(
    first: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    class Interrupt(Callback):
        """Three signals, the last of them a second Ctrl+C."""

        def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
                signal.raise_signal(number)
                time.sleep(0.01)  # Python calls the handler between two of its instructions.
                said.append(capfd.readouterr().err)

    monkeypatch.setattr(loop, "is_first", lambda: first)
    trainer = Trainer(Corridor(3), PPOConfig(num_envs=4, num_steps=4))
    model_key, key = jax.random.split(jax.random.key(0))
    state = trainer.init(MLPActorCritic.for_env(trainer.env, key=model_key), key)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(state, 1_000_000, callbacks=[Interrupt()])
    line = "stopping in good order after this chunk of updates; press Ctrl+C again to end at once, "
    assert said == [f"{line}without saving\n" if first else "", ""]


@pytest.mark.parametrize("how", [("--resume", "run"), ("--resume",), ("--resume", "latest")])
def test_a_run_is_resumed_by_name_or_as_the_latest(tmp_path: Path, how: tuple[str, ...]) -> None:
    folder = train(tmp_path, 4, *OFTEN)
    assert train(tmp_path, 6, *how) == folder
    assert folder.checkpoints.newest() == 6


def check_checkpoints(folder: RunFolder, at_least: int) -> int:
    """All are whole, and none is lost; the newest one's update."""
    complete = folder.checkpoints.steps()
    for step in complete:
        assert read_arrays(folder.checkpoints.path(step))["learner.num_updates"] == step
    last = max(complete, default=0)
    assert last >= at_least
    return last


def finish(folder: RunFolder, updates: int, program: Path = CORRIDOR) -> str:
    """Resumes in a process of its own; what it printed."""
    total = str(updates * STEPS_PER_UPDATE)
    return subprocess.run(
        [sys.executable, str(program), "--resume", str(folder.path), "--total-timesteps", total],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def kill_and_resume(
    tmp_path: Path, times: int, patience: Callable[[int], float], save_interval: str = "1"
) -> None:
    """Kills a run that saves all the time, and compares what becomes of it with one left alone.

    Args:
        patience: seconds from the first new checkpoint to the n-th kill; below 0, from the start
            of the process.
    """
    folder, last = RunFolder(tmp_path / "run"), 0
    often = ("--save-interval", save_interval, "--log-interval", "1")
    more: tuple[str, ...] = ("--run-name", "run", *often)
    for n in range(times):
        process = start(tmp_path, *more)
        wait = patience(n)
        if wait >= 0 or last == 0:
            wait_for_checkpoint(folder, last, process)
        time.sleep(abs(wait))
        newest_before = max(folder.checkpoints.steps())
        process.kill()
        process.communicate()
        last = check_checkpoints(folder, at_least=max(newest_before, last))
        more = ("--resume", "latest")
    assert f"from update {last}" in finish(folder, last + 3)
    lines = log(folder)
    assert [x["update"] for x in lines] == list(range(1, last + 4))
    assert [x["step"] for x in lines] == [x["update"] * STEPS_PER_UPDATE for x in lines]
    points = tensorboard_points(folder)
    assert len(points) == len(set(points))
    assert {step for step, _ in points} == {x["step"] for x in lines}
    assert [p.name for p in folder.checkpoints.directory.iterdir() if not p.name.isdecimal()] == []
    whole = train(tmp_path / "whole", last + 3, "--run-name", "run", *often, "--seed", "0")
    assert_same_run(folder, whole)


@pytest.mark.optimized
def test_killed_while_saving(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, 1, lambda n: 0.0)


@pytest.mark.optimized
def test_killed_with_more_in_the_log_than_in_the_checkpoint(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, 1, lambda n: 0.05, save_interval="100")


@pytest.mark.optimized
def test_killed_ten_times_at_moments_spread_over_a_save(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, 10, lambda n: 0.037 * n)


@pytest.mark.nightly
@pytest.mark.optimized
def test_killed_fifty_times_at_random_moments(tmp_path: Path) -> None:
    # Some while the process starts, finds its checkpoint and tidies up; most while it trains.
    moments = random.Random(0)
    kill_and_resume(tmp_path, 50, lambda n: moments.uniform(-2.0, 1.0))


PHASES = """
- {until: 0.3, weights: {near: 1}}
- {until: 0.6, weights: {middle: 1, near: 1}}
- {weights: {far: 2, near: 1}}
"""


@pytest.mark.parametrize(("number", "again"), [(signal.SIGTERM, 5), (signal.SIGKILL, 5)])
@pytest.mark.optimized
def test_ended_at_a_random_moment_with_all_that_changes_in_a_run(
    tmp_path: Path, number: signal.Signals, again: int
) -> None:
    phases = tmp_path / "phases.yaml"
    phases.write_text(PHASES)
    moments = random.Random(1)
    folder, last, updates = RunFolder(tmp_path / "run"), 0, 4000
    often = ("--run-name", "run", "--save-interval", "100", "--log-interval", "7")
    often += ("--anneal-lr", "--normalize-observations", "--normalize-rewards")
    often += ("--curriculum", str(phases))
    more: tuple[str, ...] = often
    for _ in range(again):
        command = [sys.executable, str(MARATHON), *flags(tmp_path, updates, *more)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        wait_for_checkpoint(folder, last, process)
        time.sleep(moments.uniform(0, 0.2))
        process.send_signal(number)
        output, _ = process.communicate()
        if number == signal.SIGTERM:
            assert process.returncode == 128 + number, output
            assert "SIGTERM after" in output
        last = check_checkpoints(folder, at_least=last + 1)
        assert last < updates
        more = ("--resume", "latest")
    finish(folder, updates, MARATHON)
    whole = tmp_path / "whole"
    assert marathon.main(marathon.TASK, marathon.DEFAULTS, flags(whole, updates, *often)) == 0
    assert_same_run(folder, RunFolder(whole / "run"))
    starts = [x["stats/start"] for x in log(folder) if "stats/start" in x]
    assert starts[0] == 2  # What was practiced did change.
    assert starts[-1] < 1.5


def test_the_order_of_writing_is_that_of_reading(uninterrupted: RunFolder) -> None:
    """A checkpoint is never newer than its log: else a kill in between would lose a line."""
    logged = os.stat(uninterrupted.metrics).st_mtime_ns
    assert logged <= os.stat(newest(uninterrupted)).st_mtime_ns

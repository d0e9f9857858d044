"""A run that is stopped, killed or wound back resumes as if nothing had happened."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import marathon
from counting import DEFAULTS, STEPS_PER_UPDATE, TASK, a_trainer, flags, train
from memory_bucket import contents
from ppo_mask.checkpoints import Checkpoint, RunDir, load_policy
from ppo_mask.runner import main
from ppo_mask.training import Callback, Progress, Run, TrainState, _loop as loop
from same_run import assert_same_run, log, newest, tensorboard_points

OFTEN = ("--log-interval", "3", "--save-interval", "4", "--scored", "4", "--length", "3")

PHASES = """
- {until: 0.3, near: 1, far: 0, gamma: 0.9}
- {until: 0.6, middle: 1, near: 1, far: 0, ent_coef: [0.1, 0]}
- {far: 2, near: 1, lr: [1e-3, 0]}
"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return train(tmp_path_factory.mktemp("whole"), 12, *OFTEN)


def copy_of(run: RunDir, parent: Path) -> RunDir:
    return RunDir(shutil.copytree(run.path, parent / "run"))


@pytest.mark.parametrize(("half", "which"), [(6, ["latest"]), (7, ["run"]), (8, [])])
def test_stopping_and_resuming_changes_no_bit(
    tmp_path: Path, uninterrupted: RunDir, half: int, which: list[str]
) -> None:
    # After 7 and 8 updates the last line is partial: the one after 9 takes its place.
    folder = train(tmp_path, half, *OFTEN)
    assert [x["update"] for x in log(folder) if "train/lr" in x][-1] == half
    assert_same_run(train(tmp_path, 12, "--resume", *which), uninterrupted)


def test_real_training_resumes_with_all_that_changes(
    tmp_path: Path, compiled: Callable[[], list[str]], forgotten: None
) -> None:
    phases = tmp_path / "phases.yaml"
    phases.write_text(PHASES)

    def go(name: str, *more: str) -> RunDir:
        words = flags(tmp_path / name, 12, *more)
        assert main(marathon.TASK, marathon.DEFAULTS, words) == 0
        return RunDir(tmp_path / name / "run")

    often = ("--run-name", "run", "--log-interval", "3", "--save-interval", "4")
    often += ("--phases", str(phases), "--anneal-lr", "--gradient-accumulation", "2")
    often += ("--normalize-observations", "--normalize-rewards")
    often += ("--eval-interval", "12", "--eval-episodes", "4")
    whole, cut = go("whole", *often), go("cut", *often)
    phases.unlink()  # The run has them.
    assert_same_run(go("cut", "--resume", str(cut.checkpoint(4).path), "--rewind"), whole)
    # Resuming in the same process finds what is compiled; the options of a run do not differ.
    assert compiled().count("jit(run_chunk)") == 1
    starts = [x["stats/start"] for x in log(whole) if "stats/start" in x]
    assert starts[0] == 2  # What is practiced does change.
    assert starts[-1] < 1.5
    assert [x["eval/stats/start"] for x in log(whole) if "eval/stats/start" in x] == [0]
    # A loaded policy sees as it did in training.
    model = load_policy(whole.path).model
    (moments,) = model.moments
    assert moments.count == 12 * STEPS_PER_UPDATE
    mean = newest(whole).arrays()["model.moments.0.mean"]
    np.testing.assert_array_equal(moments.mean, mean)


def test_a_checkpoint_says_what_it_is(uninterrupted: RunDir) -> None:
    description = newest(uninterrupted).about
    assert description["update"] == 12
    assert description["env_steps"] == 12 * STEPS_PER_UPDATE
    assert description["config"]["environment"] == {"length": 3, "scored": 4}
    assert description["architecture"]["hyperparameters"]["network"]["network"] == "Bias"
    assert "jax" in description["versions"]
    # A checkpoint is never newer than its log: else a kill in between would lose a line.
    logged = os.stat(uninterrupted.metrics).st_mtime_ns
    assert logged <= os.stat(newest(uninterrupted).path).st_mtime_ns


def test_safe_settings_may_change_and_are_stored(tmp_path: Path) -> None:
    folder = train(tmp_path, 3, *OFTEN)
    train(tmp_path, 6, "--resume", "latest", "--lr", "0.5", "--no-tensorboard")
    assert "learning_rate: 0.5" in folder.config.read_text()
    assert newest(folder).about["config"]["algorithm"]["learning_rate"] == 0.5
    rates = [x["train/lr"] for x in log(folder) if "train/lr" in x]
    assert rates == [pytest.approx(3e-3), 0.5]
    assert {step for step, _ in tensorboard_points(folder)} == {96}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "run/config.yaml must hold 'name: value' lines, got None"),
        (bytes(300), "run/config.yaml is not valid YAML"),
        (b"\xff", "run/config.yaml is not valid YAML"),
    ],
)
def test_a_damaged_config_is_refused(
    tmp_path: Path, content: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(tmp_path, 2)
    folder.config.write_bytes(content)
    assert main(TASK, DEFAULTS, flags(tmp_path, 4, "--resume", "latest")) == 2
    assert message in capsys.readouterr().err


def test_a_sink_that_was_turned_off_is_filled_up(tmp_path: Path, uninterrupted: RunDir) -> None:
    folder = train(tmp_path, 6, *OFTEN)
    train(tmp_path, 9, "--resume", "latest", "--no-tensorboard")
    train(tmp_path, 12, "--resume", "latest", "--tensorboard")
    assert_same_run(folder, uninterrupted)


def test_what_has_no_effect_on_a_resumed_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(tmp_path, 2, *OFTEN)
    before = log(folder)
    train(tmp_path, 2, "--resume", "latest")
    assert "nothing to do" in capsys.readouterr().out
    assert log(folder) == before
    train(tmp_path, 3, "--resume", "latest", "--auto-tune")
    assert "--auto-tune has no effect with --resume" in capsys.readouterr().err


def test_a_command_line_may_be_run_again_with_resume(
    tmp_path: Path, uninterrupted: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = flags(Path("ck"), 12, *OFTEN, "--run-name", "run", "--seed", "0")
    assert main(TASK, DEFAULTS, [*command, "--total-timesteps", "192"]) == 0
    assert main(TASK, DEFAULTS, [*command, "--resume", "ck/run"]) == 0
    assert_same_run(RunDir(tmp_path / "ck" / "run"), uninterrupted)
    assert main(TASK, DEFAULTS, [*command, "--resume", "latest"]) == 0
    assert [path.name for path in (tmp_path / "ck").iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("more", "name"), [((), "run"), (("--run-name", "new", "--rewind"), "new")]
)
def test_a_run_is_resumed_in_another_folder(
    tmp_path: Path,
    uninterrupted: RunDir,
    more: tuple[str, ...],
    name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = copy_of(uninterrupted, tmp_path / "old")
    (old.path / "wandb.json").write_text("{}")
    before = contents(old)
    parent = tmp_path / "new" / "place"
    older = str(old.checkpoint(8).path)
    assert main(TASK, DEFAULTS, flags(parent, 12, "--resume", older, *more)) == 0
    assert contents(old) == before
    assert [path.name for path in parent.iterdir()] == [name]
    new = RunDir(parent / name)
    assert f"run     {new.path}, from update 8 of {old.path}\n" in capsys.readouterr().out
    assert_same_run(new, uninterrupted)
    assert new.steps() == [4, 8, 12]
    assert not (new.path / "wandb.json").exists()


def test_a_signal_saves_and_ends_in_good_order(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, number = RunDir(tmp_path / "run"), signal.SIGTERM

    def send_when_under_way() -> None:
        while not folder.steps():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=send_when_under_way, daemon=True).start()
    often = ("--run-name", "run", "--log-interval", "5", "--save-interval", "20")
    assert main(TASK, DEFAULTS, flags(tmp_path, 1_000_000, *often)) == 128 + number
    last = folder.steps()[-1]
    printed = capfd.readouterr()
    assert f"{number.name} after {last:,} updates" in printed.out
    assert printed.err.count("press Ctrl+C again to end at once, without saving\n") == 1
    assert newest(folder).about["update"] == last
    assert log(folder)[-1]["update"] == last // 5 * 5


class Press(Callback):
    """Sends a signal at the first update."""

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_a_stop_is_of_one_run() -> None:
    trainer, start = a_trainer(num_envs=4, num_steps=4)
    stopped = trainer.train(start, 64, callbacks=[Press()])
    assert int(stopped.update) == 1
    assert int(trainer.train(stopped, 64).update) == 4


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

    monkeypatch.setattr(loop, "is_process_0", lambda: first)
    trainer, state = a_trainer(num_envs=4, num_steps=4)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(state, 1_000_000, callbacks=[Interrupt()])
    line = "stopping in good order after this chunk of updates; press Ctrl+C again to end at once, "
    assert said == [f"{line}without saving\n" if first else "", ""]


def test_a_resume_reads_each_description_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = ("--save-interval", "2", "--log-interval", "2")
    train(tmp_path, 6, *often)
    reads = list[str]()
    read = Checkpoint.read

    def counted(path: Path) -> Checkpoint:
        reads.append(path.name)
        return read(path)

    monkeypatch.setattr(Checkpoint, "read", counted)
    train(tmp_path, 12, "--resume", "latest")
    assert sorted(reads) == ["2", "4", "6"]  # The older ones for their scores.

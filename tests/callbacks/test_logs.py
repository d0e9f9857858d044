"""What a run leaves in files and on the screen, point by point."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from rich.console import Console
from tensorboardX.proto.event_pb2 import SessionLog

from ppo_mask.callbacks import ConsoleLog, JsonLines, TensorBoard
from ppo_mask.ppo import PPO
from ppo_mask.training import Callback, History, Progress, Run, TrainState
from ppo_mask.training._loop import run_loop
from same_run import tensorboard_events

Output = pytest.CaptureFixture[str]
CONFIG = PPO(num_envs=4, num_steps=8, num_minibatches=1)
STATE = object.__new__(TrainState)  # No sink looks into it.


def play(*callbacks: Callback, updates: range, start: int, total: int = 100) -> None:
    """Hands log lines to sinks as a run would, and leaves them open as a kill would."""
    run = Run(CONFIG, start, total, callbacks)
    for callback in callbacks:
        callback.on_start(run, STATE)
    for update in updates:
        run.update = update
        run.log({"train/loss": float(start), "train/lr": 0.5, "stats/best": update / 2})
        for callback in callbacks:
            callback.on_chunk(run, STATE, Progress(update, total, update * 32, 1000.0))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_json_stays_json_when_a_figure_is_not_finite(tmp_path: Path) -> None:
    sink, path = JsonLines(tmp_path / "metrics.jsonl"), tmp_path / "metrics.jsonl"
    run = Run(CONFIG, 0, 10, [sink])
    sink.on_start(run, STATE)
    run.log({"a": float("nan"), "b": float("inf"), "c": 1.0})
    assert lines(path) == [{"step": 0, "update": 0, "a": None, "b": None, "c": 1.0}]


def points(directory: Path) -> list[tuple[int, str, float]]:
    return sorted(
        (event.step, value.tag, value.simple_value)
        for event in tensorboard_events(directory)
        for value in event.summary.value
    )


def test_logs_have_every_metric_over_environment_steps(tmp_path: Path) -> None:
    path, events = tmp_path / "metrics.jsonl", tmp_path / "events"
    play(JsonLines(path), TensorBoard(events, path), updates=range(1, 3), start=0)
    assert lines(path) == [
        {"step": 32, "update": 1, "train/loss": 0.0, "train/lr": 0.5, "stats/best": 0.5},
        {"step": 64, "update": 2, "train/loss": 0.0, "train/lr": 0.5, "stats/best": 1.0},
    ]
    metrics = [(x["step"], name, x[name]) for x in lines(path) for name in [*x][2:]]
    assert points(events) == sorted(metrics)
    assert next(tensorboard_events(events)).file_version == "brain.Event:2"


def test_what_is_logged_at_the_start_waits_for_all_logs(tmp_path: Path, capsys: Output) -> None:
    class Sizes(Callback):
        def on_start(self, run: Run, state: TrainState) -> None:
            run.log({"mine/size": 7.0})

    path, events, history = tmp_path / "metrics.jsonl", tmp_path / "events", History()
    sinks = [Sizes(), history, JsonLines(path), TensorBoard(events, path), ConsoleLog()]
    run_loop(Run(CONFIG, 2, 2, sinks), STATE, sinks, 10, lambda state, _: state, Mock())
    assert lines(path) == [{"step": 64, "update": 2, "mine/size": 7.0}]
    assert points(events) == [(64, "mine/size", 7.0)]
    assert "update 2: mine/size 7\n" in capsys.readouterr().out
    assert len(history.records) == 1


def tear_a_line(folder: Path) -> None:
    lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_bytes(b"".join([*lines[:4], lines[4][:9] + b"\n", *lines[5:]]))


def append(name: str, content: bytes) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        for path in folder.glob(name):
            path.write_bytes(path.read_bytes()[:-20] + content)

    return act


@pytest.mark.parametrize(
    ("damage", "dropped"),
    [
        (lambda folder: None, 0),
        (append("*/*tfevents*", bytes(20)), 0),  # As a power cut may.
        (append("*/*tfevents*", b""), 0),
        (append("metrics.jsonl", bytes(100)), 1),
        (append("metrics.jsonl", b"\n\xff\xfe{\n[1]\n7"), 4),
        (tear_a_line, 1),
    ],
)
def test_a_resumed_run_shows_every_point_once(
    tmp_path: Path, capsys: Output, damage: Callable[[Path], None], dropped: int
) -> None:
    path, events = tmp_path / "metrics.jsonl", tmp_path / "events"
    play(JsonLines(path), TensorBoard(events, path), updates=range(1, 8), start=0)
    damage(tmp_path)
    play(JsonLines(path), TensorBoard(events, path), updates=range(6, 8), start=5)
    said = f"warning: dropped the damaged lines of {path}: {dropped} of "
    assert capsys.readouterr().err[: len(said)] == (said if dropped else "")
    kept = [n for n in range(1, 8) if damage is not tear_a_line or n != 5]
    losses = [(32 * n, 0.0 if n <= 5 else 5.0) for n in kept]
    assert [(x["step"], x["train/loss"]) for x in lines(path)] == losses
    assert [(step, x) for step, tag, x in points(events) if tag == "train/loss"] == losses
    # An open TensorBoard is told to forget what it has read.
    restarts = [e for e in tensorboard_events(events) if e.session_log.status == SessionLog.START]
    assert [e.step for e in restarts] == [0]


def test_tensorboard_leaves_files_that_it_does_not_write_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in (0, 2, 0):
        play(TensorBoard(tmp_path), updates=range(start + 1, 4), start=start)
    steps = [step for step, tag, _ in points(tmp_path) if tag == "train/lr"]
    assert steps == [32, 32, 64, 64, 96, 96, 96]
    monkeypatch.setattr(Path, "open", Mock(side_effect=OSError(28, "full")))
    play(TensorBoard(tmp_path, tmp_path / "no log"), updates=range(0), start=0)
    assert len(list(tmp_path.iterdir())) == 3


def test_tensorboard_forgets_the_part_of_a_line_that_the_log_has_dropped(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path, tmp_path / "a log without full lines")
    sink.on_start(Run(CONFIG, 5, 100, [sink], 5), STATE)
    (start,) = [e for e in tensorboard_events(tmp_path) if e.session_log.status]
    assert start.step == 5 * CONFIG.batch_size


def test_sinks_close_before_and_after_they_start(tmp_path: Path) -> None:
    for sink in (JsonLines(tmp_path / "a"), TensorBoard(tmp_path / "b"), ConsoleLog()):
        sink.close()
        play(sink, updates=range(1, 2), start=0)
        sink.close()
        sink.close()


def printed(terminal: bool, updates: range, best: str = "best") -> str:
    file = io.StringIO()
    file.isatty = lambda: terminal
    console = Console(file=file, width=200, color_system=None)
    sink = ConsoleLog({best: "stats/best"}, console)
    play(sink, updates=updates, start=0)
    run = Run(CONFIG, 0, 100, [sink])
    run.update = updates[-1]
    run.log({"eval/mean_episode_return": 1.5})
    sink.on_stop(run, STATE, "SIGTERM")
    sink.close()
    return file.getvalue()


def test_without_a_terminal_the_console_is_plain_lines() -> None:
    text = printed(terminal=False, updates=range(1, 31))
    assert "\x1b" not in text
    rows = [line.split() for line in text.splitlines()]
    assert rows[0][:4] == ["update", "steps", "steps/s", "left"]
    assert rows[0][-1] == "best"
    assert rows[1][:2] == ["1", "32"]
    assert rows[1][-1] == "0.5"
    assert sum(row[0] == "update" and row[1] == "steps" for row in rows) == 2
    assert "update 30: eval/mean_episode_return 1.5" in text
    assert "SIGTERM after 30 updates, 960 steps" in text
    header, row, *_ = printed(terminal=False, updates=range(10**12, 10**12 + 1)).splitlines()
    assert len(row.split()) == len(header.split())


def test_on_a_terminal_there_is_a_bar_with_steps_speed_time_and_figures() -> None:
    text = printed(terminal=True, updates=range(1, 3))
    for words in ("2.0%", "64/3,200 steps", "1,000 steps/s", "left", "best 1"):
        assert words in text


@pytest.mark.parametrize("heading", ["speed [/h]", "[bold]", ":warning:"])
def test_headings_are_shown_as_they_are(heading: str) -> None:
    text = printed(terminal=True, updates=range(1, 3), best=heading)
    assert f"{heading} 1" in text  # In the bar.
    assert f"{heading}\n" in text


@pytest.mark.parametrize("name", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_a_file_gets_no_bar_whatever_variables_say(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    assert "\x1b" not in printed(terminal=False, updates=range(1, 3))

"""``watch`` and ``play`` on a terminal: they draw, take keys, and put all back as it was."""

import os
import pty
import re
import signal
import termios
import time
from itertools import product

import pytest

from games import position, seed_to_play
from hackmatrix import cli, positions
from hackmatrix.cli import play as play_module, watch as watch_module
from hackmatrix.cli.terminal import Terminal
from hackmatrix.play.replay import Frame
from hackmatrix.render import scene

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


class Keys(Terminal):
    """A terminal that somebody sat at: the keys, "" where none came in time; what it drew."""

    def __init__(self, *keys: str):
        self.keys = [*keys]
        self.drawn: list[str] = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        assert self.keys == []

    def draw(self, lines):
        self.drawn.append("\n".join(lines))

    def key(self, timeout):
        key = self.keys.pop(0)
        if key == "ctrl+c":
            raise KeyboardInterrupt
        if key == "":
            assert timeout is not None, "it waits for a key"
            time.sleep(timeout)
        return key


@pytest.fixture
def sit_at(monkeypatch):
    """Has a command run on a terminal of ``Keys``."""

    def start(*keys):
        terminal = Keys(*keys)
        for module in (watch_module, play_module):
            monkeypatch.setattr(module, "interactive", lambda: True)
            monkeypatch.setattr(module, "Terminal", lambda: terminal)
        return terminal

    return start


def titles(terminal):
    """Of each screen that shows a game: its step, and whether it is paused or how fast it is."""
    found = (re.search(r"step (\d+) .*?(PAUSED|[\d.]+/s)", screen) for screen in terminal.drawn)
    return [f"{match[1]} {match[2]}" for match in found if match]


def frames_of(length, end):
    seen = scene(positions.load(position()))
    frames = [Frame(n, seen, (0, 1), None, {}, 0.0, None, "") for n in range(length)]
    return [*frames, Frame(length, seen, (), 0, {}, 0.0, None, end)]


def test_watch_pauses_steps_changes_its_speed_and_quits(sit_at, monkeypatch, capsys):
    monkeypatch.setattr(watch_module, "watch", lambda *args, **kw: iter(frames_of(9, "died")))
    terminal = sit_at("", "", " ", "right", "left", "+", "+", "+", "-", " ", "", "q")
    assert cli.main(["watch", "--policy", "fighter", "--seed", "1", "--fps", "20"]) == 0
    assert titles(terminal) == [
        *("0 20/s", "1 20/s", "2 20/s", "2 PAUSED", "3 PAUSED", "2 PAUSED"),
        *4 * ["2 PAUSED"],
        *("2 32/s", "3 32/s"),
    ]
    assert "fighter, seed 1: not over in stage 1" in capsys.readouterr().out
    sit_at("", "ctrl+c")
    assert cli.main(["watch", "--policy", "fighter"]) == 130


def test_watch_goes_on_to_the_next_game_and_stops_at_the_end_of_the_last(sit_at, monkeypatch):
    monkeypatch.setattr(watch_module, "watch", lambda *args, **kw: iter(frames_of(1, "died")))
    monkeypatch.setattr(watch_module, "_END_SECONDS", 0.01)
    terminal = sit_at("", "", "", "right", "left", "q")
    words = ["watch", "--policy", "fighter", "--episodes", "2", "--fps", "100"]
    assert cli.main(words) == 0
    shown = [*("0 100/s", "1 100/s"), *("0 100/s", "1 PAUSED", "1 PAUSED", "0 PAUSED")]
    assert titles(terminal) == shown


def test_a_person_plays(sit_at, capsys):
    seed = seed_to_play()
    terminal = sit_at("?", "x", "n", "up", "q")  # n is HACK, which is not owned.
    assert cli.main(["play", "--seed", str(seed)]) == 0
    begin, legend, again, refused, moved = terminal.drawn[1:]
    assert re.search(r"step 0 .*\?: help", begin)
    assert re.search(r"any key: back to the game(?s:.*)PUSH +2e +enemies: a cell away", legend)
    assert again == begin
    assert "HACK is not owned" in refused
    assert re.search(r"step 1 ", moved)
    assert "last:" in moved
    assert f"seed {seed}  step 1" in capsys.readouterr().out


@pytest.fixture
def at_pty(monkeypatch):
    """Python's input is a terminal; gives the end that somebody types at, and the other."""
    master, slave = pty.openpty()
    with os.fdopen(slave) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield master, slave
    os.close(master)


def restored(screen, before, at_pty):
    return (
        termios.tcgetattr(at_pty[1]) == before
        and screen.count(ENTER) == screen.count(LEAVE) == 1
        and "\x1b[?25h" in screen[screen.index(ENTER) :]
    )


def test_keys_come_one_at_a_time_and_by_name(at_pty):
    with Terminal() as terminal:
        os.write(at_pty[0], b"q\x1b[A\x1b[D\x1bOC\x1b[1;5H\x1b[5~x\x1b")
        keys = [terminal.key(1.0) for _ in range(8)]
        assert terminal.key(0.0) == ""
    assert keys == ["q", "up", "left", "right", "home", "", "x", "escape"]


@pytest.fixture
def guarded():
    """A signal that nobody takes fails the test, and does not end the tests."""

    def nobody(number, frame):
        raise AssertionError(f"nobody took signal {number}")

    before = {n: signal.signal(n, nobody) for n in (signal.SIGINT, signal.SIGTERM)}
    yield nobody
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "error", "lost"),
    [
        (None, RuntimeError, False),
        *product([signal.SIGINT], [KeyboardInterrupt], [False, True]),
        *product([signal.SIGTERM], [SystemExit], [False, True]),
    ],
)
def test_a_signal_or_an_error_restores_the_terminal_even_where_its_exception_is_lost(
    at_pty, guarded, capsys, number, error, lost
):
    before = termios.tcgetattr(at_pty[1])

    def use(terminal):
        assert termios.tcgetattr(at_pty[1]) != before
        try:
            if number is None:
                raise error
            os.kill(os.getpid(), number)
            time.sleep(10)
        except error:
            if not lost:
                raise
        terminal.key(0.0)

    with pytest.raises(error) as end, Terminal() as terminal:
        use(terminal)
    assert number != signal.SIGTERM or end.value.code == 143
    assert restored(capsys.readouterr().out, before, at_pty)
    assert number is None or signal.getsignal(number) is guarded


def test_watch_on_a_real_terminal_draws_and_takes_its_keys(at_pty, monkeypatch, capsys):
    monkeypatch.setattr(watch_module, "interactive", lambda: True)
    monkeypatch.setattr(watch_module, "colored", lambda: True)

    def frames(*args, **options):
        os.write(at_pty[0], b" \x1b[Cq")  # What was typed before is not taken.
        yield from frames_of(9, "died")

    monkeypatch.setattr(watch_module, "watch", frames)
    before = termios.tcgetattr(at_pty[1])
    assert cli.main(["watch", "--policy", "fighter"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b[92m@" in shown
    assert re.search(r"step 1 .*PAUSED", shown)
    assert restored(shown, before, at_pty)


def test_a_terminal_that_is_too_small_is_told_so(at_pty, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "10")
    with Terminal() as terminal:
        terminal.draw(["x" * 80])
    shown = capsys.readouterr().out
    assert "40x10 is too small" in shown
    assert "xx" not in shown

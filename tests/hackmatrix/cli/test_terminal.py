"""``watch`` and ``play`` on a pseudo-terminal: they draw, take keys, and put all back as it was."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from games import seed_to_play
from waiting import PATIENCE

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"

# The first terminal that the leader of a session opens is the one whose Ctrl+C it gets.
ON_THE_TERMINAL = """
import os, sys
os.open(os.ttyname(0), os.O_RDWR)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

# A game that needs no compiling: the frames of one position.
STILL = """
import sys
import time
from pathlib import Path
import hackmatrix.cli.watch as watch_module
from games import position
from hackmatrix import positions
from hackmatrix.render import scene
from hackmatrix.play.replay import Frame

def frames(agent, seed, **options):
    for n in range(1000):
        if n == {fails_at}:
            raise RuntimeError("a mishap")
        if n == {deaf_at}:
            try:
                time.sleep(100)
            except BaseException:
                pass
        yield Frame(n, scene(positions.load(position())), (0, 1), None, {{}}, 0.0, None, "")

watch_module.watch = frames
from hackmatrix.cli import main
sys.exit(main(["watch", "--policy", "fighter", "--fps", "20"]))
"""


class Screen:
    """A program on a terminal of 80x24, and what it has written."""

    def __init__(self, command):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        paths = [str(Path(__file__).parents[2] / "support"), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        # A size in the environment, as other tests may leave there, goes before the terminal's own.
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            command,
            stdin=self.slave,
            stdout=self.slave,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        self.written = ""

    def read(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.master], [], [], left)[0]:
                return
            self.written += os.read(self.master, 65536).decode(errors="replace")

    def wait_for(self, pattern):
        """Reads until the pattern is in what has come since the last call; gives the match."""
        began, end = len(self.written), time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.written[began:])):
            assert time.monotonic() < end, f"no {pattern!r} in {self.written[-2000:]!r}"
            assert self.process.poll() is None, self.written[-3000:]
            self.read(0.05)
        return found

    def press(self, keys):
        os.write(self.master, keys.encode())

    def finish(self):
        """Waits for the end; gives the exit code."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < end
            self.read(0.05)
        self.read(0.2)
        return self.process.returncode

    def is_restored(self):
        return (
            termios.tcgetattr(self.slave) == self.before
            and self.written.count(ENTER) == self.written.count(LEAVE) == 1
            and "\x1b[?25h" in self.written[self.written.index(ENTER) :]
        )


@pytest.fixture
def screen():
    screens = []

    def start(*arguments, still=False, fails_at=-1, deaf_at=-1):
        program = STILL.format(fails_at=fails_at, deaf_at=deaf_at)
        words = ["-c", program] if still else ["-m", "hackmatrix", *arguments]
        screens.append(Screen([sys.executable, "-c", ON_THE_TERMINAL, *words]))
        return screens[-1]

    yield start
    for each in screens:
        each.process.kill()
        each.process.wait()
        os.close(each.master)
        os.close(each.slave)


def step_of(match):
    return int(match[1])


@pytest.mark.optimized
def test_watch_draws_pauses_steps_and_quits(screen):
    shown = screen("watch", "--policy", "fighter", "--seed", "1", "--fps", "10")
    shown.wait_for(r"step 0 .*10/s")
    assert "\x1b[92m@" in shown.written  # in color
    assert "policy:" in shown.written
    shown.wait_for(r"step 3 ")
    shown.press(" ")
    at = step_of(shown.wait_for(r"step (\d+) .*PAUSED"))
    shown.read(0.5)
    assert f"step {at + 1} " not in shown.written
    shown.press("\x1b[C")
    assert step_of(shown.wait_for(r"step (\d+) .*PAUSED")) == at + 1
    shown.press("\x1b[D")
    assert step_of(shown.wait_for(r"step (\d+) .*PAUSED")) == at
    shown.press(" +")
    shown.wait_for(r"step \d+ .*20/s")
    shown.press("q")
    assert shown.finish() == 0
    assert shown.is_restored()
    assert "fighter, seed 1: not over in stage" in shown.written


@pytest.mark.slow
def test_ctrl_c_restores_the_terminal(screen):
    shown = screen(still=True)
    shown.wait_for(r"step 2 ")
    shown.press("\x03")
    assert shown.finish() == 130
    assert shown.is_restored()
    assert "Traceback" not in shown.written


@pytest.mark.optimized
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_comes_where_its_exception_is_lost_is_not_lost(screen, number, code):
    shown = screen(still=True, deaf_at=3)
    shown.wait_for(r"step 2 ")
    time.sleep(0.5)
    shown.process.send_signal(number)
    assert shown.finish() == code
    assert shown.is_restored()


@pytest.mark.optimized
def test_sigterm_restores_the_terminal(screen):
    shown = screen(still=True)
    shown.wait_for(r"step 2 ")
    shown.process.send_signal(signal.SIGTERM)
    assert shown.finish() == 143
    assert shown.is_restored()


@pytest.mark.optimized
def test_an_error_restores_the_terminal_and_is_told(screen):
    shown = screen(still=True, fails_at=3)
    assert shown.finish() == 1
    assert shown.is_restored()
    after = shown.written[shown.written.index(LEAVE) :]
    assert "RuntimeError: a mishap" in after


@pytest.mark.optimized
def test_a_terminal_that_is_too_small_is_told_so(screen):
    shown = screen(still=True)
    shown.wait_for(r"step 1 ")
    fcntl.ioctl(shown.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 40, 0, 0))
    shown.wait_for("40x10 is too small")
    shown.press("q")
    assert shown.finish() == 0


@pytest.mark.slow
def test_a_person_plays(screen):
    seed = seed_to_play()
    shown = screen("play", "--seed", str(seed))
    shown.wait_for(r"step 0 .*\?: help")
    shown.press("?")
    shown.wait_for(r"any key: back to the game(?s:.*)PUSH +2e +enemies: a cell away")
    shown.press("x")
    shown.wait_for(r"step 0 ")
    shown.press("n")  # HACK, which is not owned
    shown.wait_for("HACK is not owned")
    shown.press("\x1b[A")
    shown.wait_for(r"step 1 ")
    assert "last:" in shown.written
    shown.press("q")
    assert shown.finish() == 0
    assert shown.is_restored()
    assert f"seed {seed}  step 1" in shown.written[shown.written.index(LEAVE) :]

"""``watch``: a policy plays, in the terminal, on a page or in a GIF."""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from hackmatrix.actions import ACTION_NAMES
from hackmatrix.cli.screen import add_reveal, screen
from hackmatrix.cli.terminal import Terminal, interactive
from hackmatrix.play.agents import Agent, agent_of
from hackmatrix.play.replay import watch
from hackmatrix.render.page import Replay, page
from hackmatrix.render.picture import gif
from hackmatrix.render.sheet import rows_of, sheet
from hackmatrix.render.text import colored
from hackmatrix.task import DEFAULTS, TASK
from ppo_mask.envs.drawing import Frame
from ppo_mask.errors import RunError
from ppo_mask.runner.commands import (
    MAX_SEED,
    add_command,
    add_files,
    add_players,
    load_players,
    number,
    refuse_existing,
    write,
)

_HELP = "space: pause  ←→: step  +-: speed  q: quit"
_FASTEST, _SLOWEST = 64.0, 0.25
_END_SECONDS = 2.0


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = add_command(commands, "watch", _run, "watch a policy play")
    add_players(parser, TASK, several=False, max_steps=1000)
    add_reveal(parser)
    parser.add_argument(
        "--episodes", type=number(1), default=1, metavar="N", help="games to play (default: 1)"
    )
    add_files(parser)


def _run(options: argparse.Namespace) -> int:
    (run,) = load_players(options, TASK, DEFAULTS)
    agent = agent_of(run, sample=options.sample)
    play = partial(watch, agent, reveal=options.reveal, max_steps=options.max_steps)
    seeds = range(options.seed, options.seed + options.episodes)
    if seeds[-1] > MAX_SEED:
        raise RunError(
            f"--seed with --episodes {len(seeds)} must be at most {MAX_SEED + 1 - len(seeds)}"
        )
    if options.html or options.gif:
        files = [path for n in range(len(seeds)) for path, _ in _files(options, n)]
        refuse_existing(files, options.force)
        for n, seed in enumerate(seeds):
            replay = Replay(agent.name, seed, list(play(seed)))
            print(replay.summary())
            for path, is_page in _files(options, n):
                content = page(replay) if is_page else film(replay, options.fps)
                write(path, content, options.force)
    elif interactive():
        _in_terminal(agent, play, seeds, options.fps)
    else:
        _as_text(agent, play, seeds)
    return 0


def _files(options: argparse.Namespace, n: int) -> Iterator[tuple[str, bool]]:
    """Yields each file to write for the ``n``-th game, and True for a page or False for a GIF.

    With several games, the file names are numbered.
    """
    for name, is_page in ((options.html, True), (options.gif, False)):
        if name and options.episodes > 1:
            path = Path(name)
            yield str(path.with_stem(f"{path.stem}-{n + 1}")), is_page
        elif name:
            yield name, is_page


def film(replay: Replay, fps: float) -> bytes:
    """A replay as an animated GIF."""
    rows = rows_of(max(len(frame.scene.programs) for frame in replay.frames))
    drawings = [sheet(frame.scene, caption(frame), card_rows=rows) for frame in replay.frames]
    return gif(drawings, fps)


def caption(frame: Frame) -> str:
    """The line below a picture: the last action, its reward, and the return."""
    if frame.action is None:
        return "the game begins"
    end = f"   {frame.end}" if frame.end else ""
    return f"{ACTION_NAMES[frame.action]}  {frame.reward:+.2f}   return {frame.return_:+.2f}{end}"


def _title(agent: Agent, seed: int, frame: Frame, rest: str) -> str:
    return f"{agent.name}  seed {seed}  step {frame.step}  return {frame.return_:+.2f}  {rest}"


def _as_text(agent: Agent, play: Callable[[int], Iterator[Frame]], seeds: range) -> None:
    """Prints frames one below the other, without pauses."""
    color = colored()
    for seed in seeds:
        frames = list[Frame]()
        for frame in play(seed):
            print("\n".join(screen(frame, _title(agent, seed, frame, ""), color=color)), "\n")
            frames.append(frame)
        print(Replay(agent.name, seed, frames).summary(), flush=True)


def _in_terminal(
    agent: Agent, play: Callable[[int], Iterator[Frame]], seeds: range, fps: float
) -> None:
    done: list[Replay] = []
    try:
        with Terminal() as terminal:
            viewer = _Viewer(terminal, fps)
            for seed in seeds:
                terminal.draw(["compiling the game; this takes a while the first time ..."])
                frames = viewer.show(agent, seed, play(seed), last=seed == seeds[-1])
                done.append(Replay(agent.name, seed, frames))
                if viewer.quit:
                    break
    finally:
        for replay in done:
            print(replay.summary())


class _Viewer:
    """Shows games, at a speed that keys change.

    Attributes:
        quit: whether the person has quit.
    """

    def __init__(self, terminal: Terminal, fps: float) -> None:
        self._terminal = terminal
        self._fps = fps
        self._paused = False
        self._color = colored()
        self.quit = False

    def show(self, agent: Agent, seed: int, frames: Iterator[Frame], last: bool) -> list[Frame]:
        """Shows a game until it ends or the person quits; returns the frames played."""
        played = [next(frames)]
        at = 0
        while not self.quit:
            over = at == len(played) - 1 and bool(played[at].end)
            if over and last:
                self._paused = True
            state = "PAUSED" if self._paused else f"{self._fps:g}/s"
            title = _title(agent, seed, played[at], f"{state}  {_HELP}")
            self._terminal.draw(screen(played[at], title, color=self._color))
            move = self._wait(_END_SECONDS if over else 1 / self._fps)
            if over and not self._paused and move > 0:
                break
            at = max(0, at + move)
            if at == len(played):
                after = next(frames, None)
                played += [after] if after is not None else []
                at = len(played) - 1
        return played

    def _wait(self, seconds: float) -> int:
        """Handles keys until it is time for the next frame; returns by how many frames to move."""
        due = time.monotonic() + seconds
        while True:
            left = None if self._paused else max(0.0, due - time.monotonic())
            key = self._terminal.key(left)
            if key in ("q", "escape"):
                self.quit = True
                return 0
            if key in ("right", "n", "left", "b"):
                self._paused = True
                return 1 if key in ("right", "n") else -1
            if key == " ":
                self._paused = not self._paused
                return 0
            if key in ("+", "=", "-"):
                factor = 0.5 if key == "-" else 2.0
                self._fps = min(_FASTEST, max(_SLOWEST, self._fps * factor))
                return 0
            if not self._paused and time.monotonic() >= due:
                return 1

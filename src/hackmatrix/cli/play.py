"""``play``: a person plays, on the same screen as in ``watch``."""

import argparse
import sys
from typing import Any

from hackmatrix.actions import ACTION_NAMES, FIRST_PROGRAM, SIPHON_ACTION, find_action
from hackmatrix.cli.legend import legend
from hackmatrix.cli.screen import add_reveal, screen
from hackmatrix.cli.terminal import Terminal, interactive
from hackmatrix.env import HackMatrix
from hackmatrix.play.replay import Session
from hackmatrix.render.text import colored
from hackmatrix.rules.programs import CARDS
from ppo_mask.envs.drawing import Frame
from ppo_mask.runner import did_you_mean
from ppo_mask.runner.commands import add_command, add_seed, tell

_PROGRAM_KEYS = "123456789abcdefghijklmn"
KEYS = ("↑", "↓", "←", "→", "s", *_PROGRAM_KEYS)
"""The key of each action."""

_PRESSED = {
    "up": 0,
    "down": 1,
    "left": 2,
    "right": 3,
    "s": SIPHON_ACTION,
    " ": SIPHON_ACTION,
    **{key: FIRST_PROGRAM + number for number, key in enumerate(_PROGRAM_KEYS)},
}


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = add_command(commands, "play", _run, "play yourself, in the terminal")
    add_seed(parser, "of the first game")
    add_reveal(parser)


def _run(options: argparse.Namespace) -> int:
    if not interactive():
        return _by_words(options)
    scores: list[str] = []
    try:
        with Terminal() as terminal:
            terminal.draw(["compiling the game; this takes a while the first time ..."])
            seed = options.seed
            while _one_game(terminal, seed, options.reveal, scores):
                seed += 1
    finally:
        print("\n".join(scores), end="\n" if scores else "")
    return 0


def _one_game(terminal: Terminal, seed: int, reveal: bool, scores: list[str]) -> bool:
    """Plays a game; returns whether the person wants another."""
    game = Session(HackMatrix(), seed, reveal=reveal)
    note = ""
    while True:
        frame = game.frame()
        ask = "?: help  r: new game  q: quit" if game.over else "?: help  q: quit"
        title = _title(seed, frame, f"{ask}  {note}")
        terminal.draw(screen(frame, title, color=colored(), keys=KEYS))
        key = terminal.key(None)
        if key == "?":
            terminal.draw(legend("HackMatrix                    any key: back to the game", KEYS))
            terminal.key(None)
            continue
        if key in ("q", "escape") or (key == "r" and game.over):
            scores.append(_title(seed, frame, frame.end))
            return key == "r"
        note = ""
        if not game.over and key in _PRESSED:
            action = _PRESSED[key]
            if action in frame.allowed:
                game.act(action)
            else:
                note = why_not(action, frame)


def why_not(action: int, frame: Frame) -> str:
    """Why an action is not allowed, in a few words."""
    name, number = ACTION_NAMES[action], action - FIRST_PROGRAM
    if action == SIPHON_ACTION:
        return "no data siphon"
    if action < SIPHON_ACTION:
        return f"{name}: a wall"
    if number not in frame.scene.programs:
        return f"{name} is not owned"
    card = CARDS[number]
    if frame.scene.credits < card.credits or frame.scene.energy < card.energy:
        return f"{name} costs too much"
    return f"{name} would do nothing"


def _title(seed: int, frame: Frame, rest: str) -> str:
    return f"seed {seed}  step {frame.step}  return {frame.return_:+.2f}  {rest}".rstrip()


def _by_words(options: argparse.Namespace) -> int:
    """Plays without a terminal: each line of input is an action's name."""
    game = Session(HackMatrix(), options.seed, reveal=options.reveal)
    frame = game.frame()
    _show(options.seed, frame)
    for line in sys.stdin:
        name = line.strip()
        if game.over or name == "quit":
            break
        if name in ("?", "help"):
            print("\n".join(legend("HackMatrix: here, type an action's name", KEYS)), flush=True)
            continue
        action = find_action(name)
        if action is None:
            tell(f"there is no action {name!r}{did_you_mean(name, ACTION_NAMES)}")
        elif action not in frame.allowed:
            tell(why_not(action, frame))
        else:
            game.act(action)
            frame = game.frame()
            _show(options.seed, frame)
    return 0


def _show(seed: int, frame: Frame) -> None:
    print("\n".join(screen(frame, _title(seed, frame, ""), color=colored())), "\n", flush=True)

"""A frame of a game as 24 lines of 80 columns at most."""

import argparse
from collections.abc import Sequence

from hackmatrix.actions import ACTION_NAMES, FIRST_PROGRAM, program_price
from hackmatrix.cli.terminal import COLUMNS, ROWS
from hackmatrix.render.text import board, values
from ppo_mask.envs.drawing import Frame

_TOP_ACTIONS = 5
_BOLD, _DIM, _GREEN, _RED, _YELLOW = 1, 2, 32, 31, 33

Piece = tuple[str, int]
"""Some words, and the code of their color; 0 for none."""


def add_reveal(parser: argparse.ArgumentParser) -> None:
    """Adds the option for how much of the game a screen shows."""
    parser.add_argument(
        "--reveal", action="store_true", help="show what the player cannot see, too"
    )


def screen(
    frame: Frame, title: str, *, color: bool = False, keys: Sequence[str] | None = None
) -> list[str]:
    """The lines to show.

    Args:
        frame: the frame.
        title: the first line.
        color: whether to use ANSI colors.
        keys: the key of each action, if a person plays.
    """
    head = [_painted((title[:COLUMNS], _BOLD), color), *values(frame.scene)]
    lines = [*head, *board(frame.scene, color=color)[:-1]]
    lines += _flow(_options(frame, keys), color)
    if frame.end:
        lines.append(_painted((f"The game is over: {frame.end}.", _BOLD), color))
    else:
        lines += _flow(_policy(frame), color)
    # The rewards come last, as lines that do not fit are cut off.
    return [*lines, *_flow(_last(frame), color)][:ROWS]


def _options(frame: Frame, keys: Sequence[str] | None) -> list[Piece]:
    """The allowed actions, marked by a star, and the owned programs that cannot be run now."""
    pieces: list[Piece] = []
    owned = [FIRST_PROGRAM + number for number in frame.scene.programs]
    for action in [*range(FIRST_PROGRAM), *owned]:
        allowed = action in frame.allowed
        if action < FIRST_PROGRAM and not allowed:
            continue
        name = ACTION_NAMES[action]
        words = [f"{keys[action]}:{name}" if keys else name, program_price(action)]
        text = " ".join(filter(None, words))
        pieces.append((("*" if allowed else " ") + text, 0 if allowed else _DIM))
    return [("can:", _DIM), *pieces] if pieces else []


def _last(frame: Frame) -> list[Piece]:
    """The action that led to the frame, and its rewards."""
    if frame.action is None:
        return [("last: none yet", _DIM)]
    total = frame.reward
    pieces = [
        ("last:", _DIM),
        (ACTION_NAMES[frame.action], _BOLD),
        (f"{total:+.2f} =", _sign(total)),
    ]
    pieces += [
        (f"{name} {value:+.2f}", _sign(value)) for name, value in frame.rewards.items() if value
    ]
    return pieces


def _policy(frame: Frame) -> list[Piece]:
    """The policy's likeliest actions, and its value."""
    decision = frame.decision
    if decision is None:
        return []
    value = [(f"value {decision.value:+.2f}", _YELLOW)] if decision.value is not None else []
    ranked = sorted(frame.allowed, key=lambda action: -decision.probabilities[action])
    pieces: list[Piece] = [("policy:", _DIM)]
    for action in ranked[:_TOP_ACTIONS]:
        if not decision.probabilities[action]:
            break
        share = f"{ACTION_NAMES[action]} {100 * decision.probabilities[action]:.0f}%"
        chosen = action == decision.action
        pieces.append((("→" if chosen else "") + share, _GREEN if chosen else 0))
    return pieces + value


def _sign(value: float) -> int:
    return _GREEN if value > 0 else _RED if value < 0 else 0


def _flow(pieces: Sequence[Piece], color: bool) -> list[str]:
    """Joins the pieces and wraps them into lines."""
    lines: list[str] = []
    line, length = "", 0
    for piece in pieces:
        room = len(piece[0]) + 1
        if length and length + room > COLUMNS:
            lines.append(line)
            line, length = "", 0
        line += (" " if length else "") + _painted(piece, color)
        length += room if length else room - 1
    return [*lines, line] if line else lines


def _painted(piece: Piece, color: bool) -> str:
    text, code = piece
    return f"\x1b[{code}m{text}\x1b[0m" if color and code else text

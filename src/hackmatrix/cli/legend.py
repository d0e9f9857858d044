"""The help page of ``play``: keys, the signs on the board, and all programs."""

from collections.abc import Sequence

from hackmatrix.actions import FIRST_PROGRAM, program_price
from hackmatrix.cli.terminal import COLUMNS
from hackmatrix.rules.programs import Program

_ABOVE = """\
goal   reach EXIT in each of the eight stages; with no hp left you lose
keys   arrows: move, or attack the first enemy in that line   s, space: siphon
       the key before a program: run it   ?: this page   q, escape: quit
turn   ends with a move, an attack, a siphon or WAIT; then the enemies act
siphon takes what is on your cell and the four beside it, for one data siphon
cell   @ you   EXIT   siphon: a data siphon   2c 1e: credits and energy
       [5] data: 5 points   [PUSH] a program   [?] one of the two
       x4: siphoning the block brings 4 enemies   - siphoned   * from here
enemy  virus2: its hp   ! stunned   z waits a turn   +1 one more there
       s, t: a siphon or the schedule brought it   >3 one comes in 3 turns
"""


def legend(title: str, keys: Sequence[str]) -> list[str]:
    """The lines to show; they fit the screen.

    Args:
        title: the first line.
        keys: the key of each action.
    """
    entries = [_entry(program, keys[FIRST_PROGRAM + program]) for program in Program]
    rows = -(-len(entries) // 2)
    half = COLUMNS // 2
    columns = zip(entries[:rows], [*entries[rows:], ""], strict=False)
    programs = [f"{left:<{half}}{right}".rstrip() for left, right in columns]
    return [title, *_ABOVE.splitlines(), *programs]


def _entry(program: Program, key: str) -> str:
    cost = program_price(FIRST_PROGRAM + program)
    return f"{key} {program.card.name:<6} {cost:<5} {program.card.short}"

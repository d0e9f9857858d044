"""What a person needs to know to play: keys, the signs on the board, and all programs."""

from collections.abc import Sequence

from hackmatrix.actions import FIRST_PROGRAM, program_price
from hackmatrix.cli.terminal import COLUMNS
from hackmatrix.rules.programs import CARDS, Program

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

_DOES = {
    Program.PUSH: "enemies: a cell away",
    Program.PULL: "enemies: a cell nearer",
    Program.CRASH: "clears 8 cells around",
    Program.WARP: "jump onto one, kill it",
    Program.POLY: "enemies change type",
    Program.WAIT: "ends the turn",
    Program.DEBUG: "hits enemies on blocks",
    Program.ROW: "hits all in your row",
    Program.COL: "hits all in your column",
    Program.UNDO: "takes the turn back",
    Program.STEP: "enemies miss a turn",
    Program.SIPH_PLUS: "one more data siphon",
    Program.EXCH: "4 energy",
    Program.SHOW: "shows cryptogs",
    Program.RESET: "back to 3 hp",
    Program.CALM: "ends the schedule",
    Program.D_BOM: "kills the nearest daemon",
    Program.DELAY: "all come 3 turns later",
    Program.ANTI_V: "hits viruses, for 1",
    Program.SCORE: "points: 8 - stage",
    Program.REDUC: "blocks bring 1 less",
    Program.ATK_PLUS: "attack 1 higher",
    Program.HACK: "hits on siphoned cells",
}


def legend(title: str, keys: Sequence[str]) -> list[str]:
    """The lines to show; they fit the screen.

    Args:
        title: the first line.
        keys: what to press for each action.
    """
    entries = [_entry(program, keys[FIRST_PROGRAM + program]) for program in Program]
    rows = -(-len(entries) // 2)
    half = COLUMNS // 2
    columns = zip(entries[:rows], [*entries[rows:], ""], strict=False)
    programs = [f"{left:<{half}}{right}".rstrip() for left, right in columns]
    return [title, *_ABOVE.splitlines(), *programs]


def _entry(program: Program, key: str) -> str:
    cost = program_price(FIRST_PROGRAM + program)
    return f"{key} {CARDS[program].name:<6} {cost:<5} {_DOES[program]}"

"""The 28 actions by number and name."""

from hackmatrix.rules.programs import CARDS, NUM_PROGRAMS

SIPHON_ACTION = 4
"""The number of SIPHON, after the moves."""
FIRST_PROGRAM = 5
"""The number of the first program's action; the others follow in order."""
NUM_ACTIONS = FIRST_PROGRAM + NUM_PROGRAMS
"""How many actions there are."""
ACTION_NAMES = ("up", "down", "left", "right", "siphon", *(card.name for card in CARDS))
"""The name of each action, by its number."""


def find_action(name: str) -> int | None:
    """Finds an action's number by its name, in upper or lower case; None for an unknown name."""
    names = [each.lower() for each in ACTION_NAMES]
    return names.index(name.lower()) if name.lower() in names else None


def program_price(action: int) -> str:
    """A program's price, such as ``3c 2e``; an empty string for actions that run no program."""
    return CARDS[action - FIRST_PROGRAM].price if action >= FIRST_PROGRAM else ""

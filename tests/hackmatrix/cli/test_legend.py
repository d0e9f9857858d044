"""What the legend of ``play`` says, and that it fits."""

import pytest

from hackmatrix.actions import FIRST_PROGRAM, program_price
from hackmatrix.cli.legend import legend
from hackmatrix.cli.play import KEYS
from hackmatrix.cli.terminal import COLUMNS, ROWS
from hackmatrix.rules.programs import Program


@pytest.fixture(scope="module")
def lines():
    return legend("title", KEYS)


def test_it_fits_the_screen(lines):
    assert len(lines) <= ROWS
    assert max(map(len, lines)) < COLUMNS


@pytest.mark.parametrize("program", Program, ids=lambda program: program.card.name)
def test_every_program_has_its_key_price_and_words(lines, program):
    start = f"{KEYS[FIRST_PROGRAM + program]} {program.card.name} "
    halves = [part for line in lines for part in (line[: COLUMNS // 2], line[COLUMNS // 2 :])]
    (entry,) = [half for half in halves if half.startswith(start)]
    price, words = entry[len("1 PUSH   ") :][:6], entry[len("1 PUSH   2e    ") :]
    assert price.strip() == program_price(FIRST_PROGRAM + program)
    assert words.strip()


@pytest.mark.parametrize(
    "sign", ["@", "EXIT", "siphon", "2c", "1e", "[5]", "[?]", "x4", "-", "*", "!", "z", "+1", ">3"]
)
def test_every_sign_on_the_board_is_told(lines, sign):
    assert any(sign in line.replace(":", " ").split() for line in lines)

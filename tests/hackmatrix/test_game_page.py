"""The game's page says what the game is: its tables are the game's own, its pictures fresh."""

import re

import pytest

from hackmatrix.rules.programs import CARDS
from hackmatrix.rules.rewards import COMPONENTS, STAGE_REWARDS
from source import ROOT, load

PAGE = (ROOT / "docs" / "hackmatrix.md").read_text()
pictures = load("docs/_site/pictures.py")


def table(heading: str) -> list[list[str]]:
    """The rows of the first table after a heading, without the table's head."""
    after = PAGE[PAGE.index(f"\n### {heading}\n") :]
    first = re.search(r"(?m)(^\|.*\n)+", after)
    assert first is not None
    return [
        [cell.strip() for cell in row.strip("|").split("|")] for row in first[0].splitlines()[2:]
    ]


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_pictures_are_fresh(name):
    drawn = pictures.PICTURES[name]() + "\n"
    assert (pictures.FOLDER / f"{name}.svg").read_text() == drawn, (
        "draw the pictures anew: python docs/_site/pictures.py"
    )


def test_every_picture_is_drawn_and_shown():
    files = {path.stem for path in pictures.FOLDER.iterdir()}
    assert files == set(pictures.PICTURES)
    shown = re.findall(r"\(images/game/(\w+)\.svg\)", PAGE)
    assert sorted(shown) == sorted(files)


def test_the_table_of_programs_is_the_games():
    assert table("Programs") == [
        [card.name, card.price, card.text, str(card.spawn_count)] for card in CARDS
    ]


def test_the_table_of_rewards_is_the_games():
    rows = {name: said for cell, said in table("The reward") for name in re.findall(r"\w+", cell)}
    assert tuple(rows) == COMPONENTS
    numbers = re.findall(r"\d+", rows["stage_completion"])
    assert tuple(map(float, numbers)) == STAGE_REWARDS

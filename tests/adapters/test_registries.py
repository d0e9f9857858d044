"""Every environment that gymnax, jumanji, navix and pgx register works, or is refused for a reason.

docs/other_libraries.md has the table; it is compared with what is found here.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppo_mask.adapters.gymnax import GymnaxEnv
from ppo_mask.adapters.jumanji import JumanjiEnv
from ppo_mask.adapters.navix import NavixEnv
from ppo_mask.adapters.pgx import PgxGame
from ppo_mask.envs import AbstractEnv
from ppo_mask.envs._shapes import shapes_of
from ppo_mask.errors import RunError
from ppo_mask.games import Seat, random_opponent

PAGE = Path(__file__).parents[2] / "docs" / "other_libraries.md"
CONTINUOUS, SEVERAL = "actions of", "to several agents"
DOWNLOAD = "downloads what"
REFUSED = {
    "gymnax": {
        "Pendulum-v1": CONTINUOUS,
        "MountainCarContinuous-v0": CONTINUOUS,
        "PointRobot-misc": CONTINUOUS,
        "Reacher-misc": CONTINUOUS,
        "Swimmer-misc": CONTINUOUS,
        "MNISTBandit-bsuite": DOWNLOAD,
    },
    "jumanji": {
        "MultiCVRP-v0": CONTINUOUS,
        "SearchAndRescue-v0": CONTINUOUS,
        "Connector-v3": SEVERAL,
        "LevelBasedForaging-v0": SEVERAL,
        "Sokoban-v0": DOWNLOAD,
    },
    "navix": {},
    "pgx": {},
}
"""What the one line says of those that do not work. A download may work, with a network."""


def of_pgx(name: str) -> Seat:
    import pgx

    game = pgx.make(name)
    return Seat(PgxGame(game), random_opponent if game.num_players > 1 else None)


MAKE: dict[str, Callable[[str], AbstractEnv[Any]]] = {
    "gymnax": GymnaxEnv,
    "jumanji": JumanjiEnv,
    "navix": NavixEnv,
    "pgx": of_pgx,
}


def registered(library: str) -> list[str]:
    module = pytest.importorskip(library)
    if library == "gymnax":
        return list(module.registered_envs)
    if library == "jumanji":
        return list(module.registered_environments())
    return list(module.registry()) if library == "navix" else list(module.available_envs())


def why_not(make: Callable[[str], AbstractEnv[Any]], name: str) -> str:
    """Why an environment does not work; empty if it does."""
    try:
        shapes_of(make(name))
    except (ValueError, RunError) as error:
        return str(error)
    return ""


@pytest.mark.nightly
@pytest.mark.optimized
@pytest.mark.parametrize("library", MAKE)
def test_each_environment_works_or_is_refused_for_a_reason(library: str) -> None:
    names, refused = registered(library), REFUSED[library]
    assert set(refused) <= set(names)
    for name in names:
        line = why_not(MAKE[library], name)
        if refused.get(name) == DOWNLOAD:
            assert not line or DOWNLOAD in line, name
        else:
            assert (name in refused) == bool(line), f"{name}: {line}"
            assert refused.get(name, "") in line, f"{name}: {line}"
        assert "\n" not in line, name


@pytest.mark.parametrize("library", MAKE)
def test_the_page_says_the_same(library: str) -> None:
    (row,) = re.findall(rf"^\| {library} \| (\d+) \| (\d+) \|(.*)\|$", PAGE.read_text(), re.M)
    refused = REFUSED[library]
    assert set(re.findall(r"`([\w-]+)`", row[2])) == set(refused)
    assert int(row[0]) == len(registered(library))
    assert int(row[1]) == len(registered(library)) - len(refused)

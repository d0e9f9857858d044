"""The trained policies that come with the package."""

import csv

import equinox as eqx
import numpy as np
import pytest

from hackmatrix.play.agents import named_agent
from hackmatrix.play.evaluation import measure
from hackmatrix.task import CHAMPION
from recorded import row, views


def test_the_champion_is_small_and_says_how_it_came_about():
    files = [path for path in CHAMPION.parent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 2_000_000
    assert "hackmatrix train --preset strong" in (CHAMPION.parent / "README.md").read_text()
    with (CHAMPION.parent / "curve.csv").open() as file:
        returns = [float(row["return"]) for row in csv.DictReader(file)]
    assert len(returns) > 20
    assert returns[-1] > 5 * returns[0]


def test_they_name_no_folder_of_the_machine_that_saved_them():
    for path in CHAMPION.parent.rglob("commit_success.txt"):
        assert "/" not in path.read_text()


@pytest.mark.parametrize("name", ["champion", "steady"])
def test_they_load_and_know_what_a_position_is_worth(name):
    agent = named_agent(name)
    assert agent.greedy == (name == "steady")  # The champion would go in circles.
    seen = views().timed if agent.env.time_aware else views().compact
    distribution, value = eqx.filter_jit(agent.model)(row(seen, 0), views().mask[0])
    assert np.abs(value) > 1
    assert np.max(distribution.probs) > 0.2
    assert not np.any(distribution.probs[~views().mask[0]])


@pytest.mark.optimized
@pytest.mark.parametrize("name", ["champion", "steady"])
def test_they_win_as_often_as_they_did(name):
    """Of 1,000 games they win six in ten; of 300, fewer than half in one of 10,000 seeds."""
    found = measure(named_agent(name), seed=2, episodes=300)
    assert found.win_rate.mean > 0.5
    assert found.estimates["stage"].mean > 6
    assert found.cut_off < (3 if name == "steady" else 12)  # Steady walks in no circles.
    if name == "champion":
        assert found.estimates["return"].mean > 380
        assert found.actions["siphon"] > 7
        programs = sum(n for name, n in found.actions.items() if name.isupper() and name != "UNDO")
        assert programs > 9

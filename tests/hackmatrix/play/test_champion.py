"""The trained policy that comes with the package."""

import csv

import pytest

from hackmatrix.cli import main
from hackmatrix.play.agents import named_agent
from hackmatrix.play.evaluation import measure
from hackmatrix.task import CHAMPION


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["champion", "steady"])
def test_it_is_watched_right_after_installing(name, capsys):
    assert main(["watch", "--policy", name, "--seed", "2", "--max-steps", "3"]) == 0
    assert name in capsys.readouterr().out


@pytest.mark.optimized
def test_steady_walks_in_no_circles():
    agent = named_agent("steady")
    assert agent.greedy
    found = measure(agent, seed=2, episodes=1000)
    assert found.cut_off < 5
    assert found.win_rate.mean > 0.5
    assert found.estimates["stage"].mean > 6.1


@pytest.mark.optimized
def test_the_champion_plays_as_well_as_it_did():
    found = measure(named_agent("champion"), seed=2, episodes=1000)
    assert found.win_rate.mean > 0.57
    assert found.estimates["stage"].mean > 6.3
    assert found.estimates["return"].mean > 430
    assert found.actions["siphon"] > 7
    programs = sum(n for name, n in found.actions.items() if name.isupper() and name != "UNDO")
    assert programs > 9
    assert found.cut_off < 25

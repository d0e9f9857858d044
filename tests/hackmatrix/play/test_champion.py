"""The trained policy that comes with the package."""

import csv

import equinox as eqx
import numpy as np
import pytest

from games import evaluated
from hackmatrix.play.agents import load_agent
from hackmatrix.task import CHAMPION
from recorded import row, views


def test_the_champion_is_small_says_how_it_came_about_and_holds_nothing_of_a_machine():
    files = [path for path in CHAMPION.parent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 2_000_000
    assert "commit_success.txt" not in {path.name for path in files}  # It would name a folder.
    assert (
        "hackmatrix train --preset champion --seed 0" in (CHAMPION.parent / "README.md").read_text()
    )
    with (CHAMPION.parent / "curve.csv").open() as file:
        returns = [float(row["return"]) for row in csv.DictReader(file)]
    assert len(returns) > 20
    assert returns[-1] > 5 * returns[0]


def test_it_loads_and_knows_what_a_position_is_worth():
    agent = load_agent("champion")
    assert agent.greedy
    assert not load_agent("champion", sample=True).greedy
    assert agent.env.time_aware
    distribution, value = eqx.filter_jit(agent.model)(row(views().timed, 0), views().mask[0])
    assert np.abs(value) > 1
    assert np.max(distribution.probs) > 0.2
    assert not np.any(distribution.probs[~views().mask[0]])


@pytest.mark.optimized
def test_it_wins_as_often_as_it_did():
    """Of 2,000 games it won 68 %; of 150, fewer than half in one of 100,000 seeds."""
    found = evaluated(load_agent("champion"), seed=2, episodes=150)
    assert found.values["eval/stats/win_rate"] > 0.5
    assert found.values["eval/stats/mean_stage"] > 6
    assert found.truncated.sum() < 5  # It leaves circles: 1 % of 2,000.
    assert found.mean_return > 390
    assert found.values["eval/actions/siphon_frac"] * found.mean_length > 8
    assert found.values["eval/actions/program_frac"] > 0.03

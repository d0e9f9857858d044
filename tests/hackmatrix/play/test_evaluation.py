"""Many games: what is counted, and what was measured in the original."""

import re

import numpy as np
import pytest

from hackmatrix.cli.evaluate import table
from hackmatrix.play.agents import named_agent
from hackmatrix.play.evaluation import mean_estimate, measure, share_estimate


@pytest.fixture(scope="module")
def some():
    return measure(named_agent("random"), 0, 20, max_steps=30)


@pytest.mark.slow
def test_every_game_is_counted(some):
    assert sum(some.stages) == some.episodes == 20
    stages = sum(n * count for n, count in enumerate(some.stages, start=1)) / 20
    assert some.estimates["stage"].mean == pytest.approx(stages)
    assert sum(some.actions.values()) == pytest.approx(some.estimates["length"].mean)
    assert 0 < some.cut_off < 20
    assert some.estimates["length"].mean <= 30
    assert len(some.actions) == 28
    assert some.win_rate.mean == 0
    assert 0.1 < some.win_rate.high < 0.2


def test_the_table_has_every_figure(some):
    shown = table([some, some])
    assert shown.splitlines()[0].split() == ["random", "random"]
    for name, estimate in some.estimates.items():
        line = next(line for line in shown.splitlines() if line.startswith(name))
        cell = f"{estimate.mean:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
        assert line.count(cell) == 2
    assert re.search(rf"^cut off +{some.cut_off} +{some.cut_off}$", shown, re.MULTILINE)
    assert "ended in stage 8" in shown
    assert "up a game" in shown
    assert "HACK" not in shown  # nobody ran it


def test_intervals():
    values = np.array([1.0, 2.0, 3.0, 4.0])
    estimate = mean_estimate(values)
    half = 1.96 * values.std(ddof=1) / 2
    assert (estimate.low, estimate.mean, estimate.high) == pytest.approx(
        (2.5 - half, 2.5, 2.5 + half)
    )
    assert mean_estimate(np.array([1.0])).high == np.inf
    # Wilson's, as printed in textbooks.
    assert share_estimate(0, 10).high == pytest.approx(0.2775, abs=1e-4)
    assert share_estimate(5, 10).low == pytest.approx(0.2366, abs=1e-4)
    assert share_estimate(10, 10).high == pytest.approx(1)


# Mean final stage and return of 150 games each in the original.
MEASURED = {"random": (1.24, -2.8), "greedy-exit": (3.0, 1.0), "fighter": (4.1, 5.8)}


@pytest.mark.optimized
@pytest.mark.parametrize("name", MEASURED)
def test_scripted_policies_do_as_well_as_in_the_original(name):
    result = measure(named_agent(name), 1, 1000)
    assert result.cut_off == 0
    for figure, there in zip(("stage", "return"), MEASURED[name], strict=True):
        here = result.estimates[figure]
        error = (here.high - here.low) / 2
        # Theirs is larger by the root of the ratio of games; the two add as independent ones do.
        both = error * (1 + 1000 / 150) ** 0.5
        # Each holds for 95 of 100 seeds, and there are six: so wide that all hold for as many.
        assert abs(here.mean - there) < both * 2.64 / 1.96, (figure, here)

"""Many games: what is shown, and what was measured in the original."""

import re

import pytest

from games import evaluated
from hackmatrix import cli
from hackmatrix.play.agents import load_agent


@pytest.mark.slow
def test_evaluate_shows_what_the_game_counts(capsys):
    words = ["evaluate", "--episodes=20", "--max-steps=30", "--policy", "random", "fighter"]
    assert cli.main(words) == 0
    shown, said = capsys.readouterr()
    assert "20 episodes by fighter" in said
    assert shown.splitlines()[0].split() == ["random", "fighter"]
    for name in ("win_rate", "ended_in_stage_8"):
        assert re.search(rf"^stats/{name} +0.0% \[0.0, 16.1\] ", shown, re.MULTILINE)
    assert re.search(r"^stats/mean_score +[-.0-9]+ \[", shown, re.MULTILINE)
    assert re.search(r"^actions/up_frac +0\.\d+ +0\.\d+$", shown, re.MULTILINE)
    assert "actions/UNDO_frac" not in shown  # Neither ran it.


# Mean final stage and return of 150 games each in the original.
MEASURED = {"random": (1.24, -2.8), "greedy-exit": (3.0, 1.0), "fighter": (4.1, 5.8)}


@pytest.mark.optimized
@pytest.mark.parametrize("name", MEASURED)
def test_scripted_policies_do_as_well_as_in_the_original(name):
    result = evaluated(load_agent(name), 1, 1000)
    assert not result.truncated.any()
    shares = [x for key, x in result.values.items() if "ended_in_stage" in key]
    assert sum(shares) == pytest.approx(1)
    stages = sum(n * share for n, share in enumerate(shares, start=1))
    assert result.values["eval/stats/mean_stage"] == pytest.approx(stages)
    for figure, there in zip(("stats/mean_stage", "return"), MEASURED[name], strict=True):
        here = result.estimates[figure]
        error = (here.high - here.low) / 2
        # Theirs is larger by the root of the ratio of games; the two add as independent ones do.
        both = error * (1 + 1000 / 150) ** 0.5
        # Each holds for 95 of 100 seeds, and there are six: so wide that all hold for as many.
        assert abs(here.mean - there) < both * 2.64 / 1.96, (figure, here)

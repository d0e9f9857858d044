"""Many games: what is counted, and what was measured in the original."""

import json
import re

import jax
import numpy as np
import pytest

from games import ENV
from hackmatrix import cli
from hackmatrix.actions import ACTION_NAMES
from hackmatrix.cli import evaluate
from hackmatrix.play.agents import named_agent
from hackmatrix.play.evaluation import (
    Estimate,
    Evaluation,
    _Tallied,
    mean_estimate,
    measure,
    share_estimate,
)

SOME = Evaluation(
    name="random",
    episodes=20,
    estimates={
        name: Estimate(n + 0.5, n + 0.25, n + 0.75)
        for n, name in enumerate(("return", "stage", "score", "length"))
    },
    win_rate=share_estimate(1, 20),
    cut_off=3,
    stages=[15, 4, 0, 0, 0, 0, 0, 1],
    actions=dict.fromkeys(ACTION_NAMES, 0.0) | {"up": 2.0},
)


def test_the_score_and_each_action_are_tallied():
    env = _Tallied(ENV)
    state, timestep = env.reset(jax.random.key(0))
    taken = np.zeros(28, int)
    for number in range(5):
        assert timestep.info["score"] == state[0].game.player.score
        assert timestep.info["actions"].tolist() == taken.tolist()
        action = int(np.flatnonzero(timestep.action_mask)[-1])
        taken[action] += 1
        state, timestep = env.step(jax.random.key(number), state, np.int32(action))
    assert timestep.info["actions"].tolist() == taken.tolist()


def test_evaluate_prints_every_figure(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(evaluate, "measure", lambda *words: asked.append(words[1:]) or SOME)
    words = ["evaluate", "--episodes=20", "--max-steps=30", "--seed=4", "--policy"]
    assert cli.main([*words, "random", "random"]) == 0
    shown, said = capsys.readouterr()
    assert asked == 2 * [(4, 20, 30)]
    assert "20 games by random" in said
    assert shown.splitlines()[0].split() == ["random", "random"]
    for name, estimate in SOME.estimates.items():
        line = next(line for line in shown.splitlines() if line.startswith(name))
        cell = f"{estimate.mean:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
        assert line.count(cell) == 2
    assert re.search(r"^won +5.0% \[0.9, 23.6\] ", shown, re.MULTILINE)
    assert re.search(r"^cut off +3 +3$", shown, re.MULTILINE)
    assert re.search(r"^ended in stage 1 +75.0% █{8} ", shown, re.MULTILINE)
    assert "ended in stage 8" in shown
    assert re.search(r"^up a game +2.00 +2.00$", shown, re.MULTILINE)
    assert "HACK" not in shown  # nobody ran it

    assert cli.main([*words, "random", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["name"] == "random"
    assert result["stages"] == SOME.stages
    assert result["estimates"]["return"] == {"mean": 0.5, "low": 0.25, "high": 0.75}


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
    assert sum(result.stages) == result.episodes == 1000
    stages = sum(n * count for n, count in enumerate(result.stages, start=1)) / 1000
    assert result.estimates["stage"].mean == pytest.approx(stages)
    assert sum(result.actions.values()) == pytest.approx(result.estimates["length"].mean)
    assert tuple(result.actions) == ACTION_NAMES
    for figure, there in zip(("stage", "return"), MEASURED[name], strict=True):
        here = result.estimates[figure]
        error = (here.high - here.low) / 2
        # Theirs is larger by the root of the ratio of games; the two add as independent ones do.
        both = error * (1 + 1000 / 150) ** 0.5
        # Each holds for 95 of 100 seeds, and there are six: so wide that all hold for as many.
        assert abs(here.mean - there) < both * 2.64 / 1.96, (figure, here)

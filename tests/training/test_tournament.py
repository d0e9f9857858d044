"""Policies against each other, and their ratings."""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import corridor
import ppo_mask as pm
from poker import Kuhn
from ppo_mask.games import AbstractGame, Seat, Turn, random_opponent
from ppo_mask.networks import UniformActorCritic
from ppo_mask.runner import Task, main
from ppo_mask.training import Tournament, play_each
from ppo_mask.training._tournament import _elo


class Higher(AbstractGame):
    """Both name a number from 0 to 2 in turn; the higher one wins, equal ones are a draw."""

    num_actions: int = eqx.field(static=True, default=3)
    num_players: int = eqx.field(static=True, default=2)

    def deal(self, key):
        return self._show(jnp.full(2, -1))

    def move(self, key, state, action):
        return self._show(state.at[(state >= 0).sum()].set(action))

    def observe(self, state, player):
        return jnp.ones(1)

    def _show(self, state):
        made = (state >= 0).sum()
        wins = jnp.where(made == 2, jnp.sign(state[0] - state[1]), 0).astype(jnp.float32)
        return state, Turn(made % 2, jnp.ones(3, bool), jnp.stack([wins, -wins]), made == 2)


class Always(pm.AbstractActorCritic):
    """Names one number."""

    number: int = eqx.field(static=True)

    @property
    def hyperparameters(self):
        return {"number": self.number}

    def __call__(self, observation, action_mask):
        logits = jnp.where(jnp.arange(3) == self.number, 0.0, -1e9)
        return pm.MaskedCategorical(logits, action_mask), jnp.float32(0)


PLAYERS = {"random": UniformActorCritic(3), "low": Always(0), "high": Always(2)}


def test_each_plays_against_each():
    found = play_each(PLAYERS, Higher(), jax.random.key(0), 300)
    assert list(found.outcomes) == [("random", "low"), ("random", "high"), ("low", "high")]
    assert set(found.outcomes["random", "low"].tolist()) == {0.5, 1.0}
    # A draw in one game of three.
    for pair, points in {("random", "low"): 5 / 6, ("random", "high"): 1 / 6}.items():
        there, back = found.points(*pair), found.points(*reversed(pair))
        assert there.low < points < there.high
        assert there.mean + back.mean == pytest.approx(1)
    assert found.points("high", "low").mean == 1
    assert 0.98 < found.points("high", "low").low < 1  # Not certain after 300 games.
    assert found.elo["low"].high < found.elo["random"].mean == 0 < found.elo["high"].low


def test_ratings_are_those_of_the_shares():
    games = np.repeat([1.0, 0.5, 0.0], [70, 9, 20])
    (first, second), outcomes = ("a", "b"), {("a", "b"): games}
    found = _elo((first, second), outcomes)
    assert found["a"] == (0, 0, 0)
    # With the draw that is added, 75 of 100 points.
    assert found["b"].mean == pytest.approx(-400 * np.log10(3))
    width = 1.96 * 400 / np.log(10) / np.sqrt(100 * 0.75 * 0.25)
    assert found["b"].high - found["b"].mean == pytest.approx(width)
    assert Tournament(("a", "b"), outcomes, found).points("b", "a").mean == pytest.approx(
        1 - 74.5 / 99
    )
    always = _elo(("a", "b"), {("a", "b"): np.ones(1000)})
    assert -2000 < always["b"].mean < -1000


def test_what_is_no_tournament_is_refused():
    with pytest.raises(ValueError, match="two policies or more and a game of two players, got 1"):
        play_each({"random": UniformActorCritic(2)}, Kuhn(), jax.random.key(0), 4)


def test_a_program_plays_its_policies_against_each_other(capsys):
    task = Task(
        lambda settings: Seat(Higher(), random_opponent),
        policies={"low": Always(0), "high": Always(2)},
    )
    words = ["evaluate", "--tournament", "--episodes=40", "--policy", "random", "low", "high"]
    assert main(task, corridor.DEFAULTS, words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "points of / against"
    assert lines[3].startswith("high")
    assert lines[3].endswith("]")
    assert "100.0% [91.2, 100.0]" in lines[3]
    assert main(task, corridor.DEFAULTS, [*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["elo"]["random"]["mean"] == 0
    assert set(found["points"]) == {"random / low", "random / high", "low / high"}
    for words, problem in (
        (["low", "low"], "policies of different names"),
        (["low"], "a tournament needs two policies or more"),
    ):
        assert main(task, corridor.DEFAULTS, ["evaluate", "--tournament", "--policy", *words]) == 2
        assert problem in capsys.readouterr().err
    elsewhere = dataclasses.replace(corridor.TASK)
    assert main(elsewhere, corridor.DEFAULTS, ["evaluate", "--tournament", "--policy=random"]) == 2
    assert "--tournament is for an environment that is a ppo_mask.games" in capsys.readouterr().err

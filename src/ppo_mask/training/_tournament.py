"""Plays the policies of a game against each other, and rates them."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, SupportsIndex

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from ppo_mask.games import AbstractGame, Seat
from ppo_mask.networks import ModelLike
from ppo_mask.training._evaluate import NORMAL_95, Estimate, estimate, evaluate
from ppo_mask.training._self_play import PER_ELO


@dataclass(frozen=True)
class Tournament:
    """The results of policies against each other.

    Attributes:
        names: the policies' names.
        outcomes: by the names of two policies, the first one's outcome of each game: 1 for a win, ½
            for a draw, 0 for a loss.
        elo: each policy's Elo rating (Elo 1978), with its 95% interval; the first policy has 0.
    """

    names: tuple[str, ...]
    outcomes: dict[tuple[str, str], Float[np.ndarray, " games"]]
    elo: dict[str, Estimate]

    def points(self, name: str, other: str) -> Estimate:
        """Estimates the share of points that one policy gets against another."""
        if (name, other) in self.outcomes:
            values = self.outcomes[name, other]
        else:
            values = 1 - self.outcomes[other, name]
        return estimate(values == 1 if np.isin(values, (0, 1)).all() else values)


def play_each(
    players: Mapping[str, ModelLike],
    game: AbstractGame[Any],
    key: Key[Array, ""],
    num_games: SupportsIndex,
    *,
    max_steps: SupportsIndex = 10_000,
) -> Tournament:
    """Lets each policy play against each other one, in games of two players.

    Actions are sampled, and who begins is sampled, too.

    Args:
        players: the policies by name; ratings are relative to the first, such as random play.
        game: the game.
        key: the random key of the games.
        num_games: games of each pair.
        max_steps: moves of one player after which a game is cut off.

    Raises:
        ValueError: there are fewer than two policies, or not two players in the game.
    """
    if len(players) < 2 or game.num_players != 2:
        raise ValueError(
            f"a tournament needs two policies or more and a game of two players, got "
            f"{len(players)} and a game of {game.num_players}"
        )
    names, outcomes = tuple(players), dict[tuple[str, str], np.ndarray]()
    pairs = list(combinations(names, 2))
    for (name, other), pair_key in zip(pairs, jax.random.split(key, len(pairs)), strict=True):
        env = Seat(game, players[other])
        result = evaluate(
            players[name], env, pair_key, num_games, greedy=False, max_steps=max_steps
        )
        outcomes[name, other] = result.final_info["outcome"]
    return Tournament(names, outcomes, _elo(names, outcomes))


def _elo(
    names: tuple[str, ...], outcomes: Mapping[tuple[str, str], Float[np.ndarray, " games"]]
) -> dict[str, Estimate]:
    """Computes the most likely ratings of the model of Bradley and Terry (1952).

    Each pair has one more game, a draw, so that a policy that always wins has a finite rating.
    """
    strength, covariance = np.zeros(len(names)), np.zeros((0, 0))
    for _ in range(100):  # Newton's method.
        slope, curvature = np.zeros(len(names)), np.zeros((len(names), len(names)))
        for (name, other), games in outcomes.items():
            i, j, number = names.index(name), names.index(other), len(games) + 1
            expected = 1 / (1 + np.exp(strength[j] - strength[i]))
            direction = np.zeros(len(names))
            direction[i], direction[j] = 1, -1
            slope += (games.sum() + 0.5 - number * expected) * direction
            curvature += number * expected * (1 - expected) * np.outer(direction, direction)
        covariance = np.linalg.inv(curvature[1:, 1:])
        step = np.clip(covariance @ slope[1:], -1, 1)
        strength[1:] += step
        if np.abs(step).max() < 1e-9:
            break
    half = NORMAL_95 * np.sqrt(np.diag(covariance)) / PER_ELO
    rated = zip(strength / PER_ELO, (0.0, *half), strict=True)
    ratings = [Estimate(float(x), float(x - h), float(x + h)) for x, h in rated]
    return dict(zip(names, ratings, strict=True))

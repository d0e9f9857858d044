"""Policies that play: those that come with the package, and those of training runs."""

from dataclasses import dataclass
from typing import cast

from hackmatrix.env import HackMatrix
from hackmatrix.networks import BoardNetwork, BoardReader, FlatReader, PlayerCentered
from hackmatrix.task import DEFAULTS, TASK, GameSettings
from ppo_mask.networks import Model
from ppo_mask.runner import TrainedRun, load_run
from ppo_mask.search import Search

NETWORKS = (PlayerCentered, BoardReader, BoardNetwork, FlatReader)
"""The game's classes that a model may consist of, for :func:`ppo_mask.checkpoints.load_policy`."""


@dataclass(frozen=True)
class Agent:
    """A policy that plays.

    Attributes:
        name: for titles and tables.
        model: the policy.
        greedy: whether the policy takes the likeliest action instead of sampling one.
        env: the game that the policy plays.
        search: how it searches before each action; None if it does not.
    """

    name: str
    model: Model
    greedy: bool
    env: HackMatrix
    search: Search | None = None


def agent_of(run: TrainedRun[GameSettings], *, sample: bool = False) -> Agent:
    """A loaded policy as an agent; a scripted policy always samples."""
    env = cast(HackMatrix, run.env)
    return Agent(run.name, run.policy.model, run.plays_greedily(sample), env, run.search)


def load_agent(place: str, checkpoints: str = "checkpoints", *, sample: bool = False) -> Agent:
    """The policy of a run, a checkpoint, or a saved policy; or one that comes with the package.

    Args:
        place: what :func:`ppo_mask.runner.load_run` takes.
        checkpoints: the folder or URL with the runs that ``place`` can name.
        sample: whether the policy samples its actions instead of taking the likeliest.

    Raises:
        RunError: there is no readable checkpoint, or it is of another program.
    """
    return agent_of(load_run(TASK, DEFAULTS, place, checkpoints), sample=sample)

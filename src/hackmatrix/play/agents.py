"""Policies that play: those that come with the package, and those of training runs."""

from dataclasses import dataclass

from hackmatrix.env import MIN_UNDO_DEPTH, HackMatrix
from hackmatrix.networks import BoardNetwork, BoardReader, FlatReader, PlayerCentered
from hackmatrix.play.policies import SCRIPTED
from hackmatrix.task import DEFAULTS, TASK
from ppo_mask.checkpoints import load_policy
from ppo_mask.errors import RunError
from ppo_mask.networks import Model, as_model
from ppo_mask.runner import did_you_mean, load_run

NETWORKS = (PlayerCentered, BoardReader, BoardNetwork, FlatReader)
"""The game's classes that a model may consist of, for :func:`load_policy`."""

POLICIES = (*SCRIPTED, *TASK.policies)
"""The names of the policies that come with the package."""


@dataclass(frozen=True)
class Agent:
    """A policy that plays.

    Attributes:
        name: for titles and tables.
        model: the policy.
        greedy: whether the policy takes the likeliest action instead of sampling one.
        env: the game that the policy plays.
    """

    name: str
    model: Model
    greedy: bool
    env: HackMatrix


def game_for(model: Model, undo_depth: int = MIN_UNDO_DEPTH) -> HackMatrix:
    """The game without training's changes, with the observations that a policy needs.

    Args:
        model: the policy.
        undo_depth: the ``undo_depth`` of the game that the policy was trained on.
    """
    reader = model.reader
    time_aware = isinstance(reader, PlayerCentered) and reader.time_aware
    return HackMatrix(undo_depth, time_aware=time_aware)


def named_agent(name: str, *, sample: bool = False) -> Agent:
    """A policy that comes with the package, scripted or trained.

    Args:
        name: one of ``POLICIES``.
        sample: whether a network samples its actions instead of taking the likeliest. A scripted
            policy always samples.

    Raises:
        RunError: the name is unknown.
    """
    if name not in POLICIES:
        hint = did_you_mean(name, POLICIES)
        raise RunError(f"there is no policy {name}{hint}; there are {', '.join(POLICIES)}")
    if name in TASK.policies:
        # Faster than `load_run`, which makes all networks of the task to know their classes.
        model = load_policy(TASK.policies[name], NETWORKS).model
        return Agent(name, model, not sample, game_for(model))
    return Agent(name, as_model(SCRIPTED[name]), False, HackMatrix())


def load_agent(place: str, checkpoints: str = "checkpoints", *, sample: bool = False) -> Agent:
    """The policy of a run, a checkpoint, or a saved policy; see :func:`ppo_mask.runner.load_run`.

    Args:
        place: what ``load_run`` takes, or one of ``POLICIES``.
        checkpoints: the folder or URL with the runs that ``place`` can name.
        sample: whether the policy samples its actions instead of taking the likeliest.

    Raises:
        RunError: there is no readable checkpoint, or it is of another program.
    """
    if place in POLICIES:
        return named_agent(place, sample=sample)
    run = load_run(TASK, DEFAULTS, place, checkpoints)
    name = run.run_dir.path.name if run.update is None else f"{run.run_dir.path.name}/{run.update}"
    # Without the run's limit of steps, as watching and evaluating have their own limits.
    env = game_for(run.policy.model, run.config.environment.undo_depth)
    return Agent(name, run.policy.model, not sample, env)

"""Loads a trained run: its environment, its policy and its settings."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import equinox as eqx
import jax
from jaxtyping import Array, Key

from ppo_mask.checkpoints import RunDir, load_policy, load_weights
from ppo_mask.checkpoints._policy import is_saved_policy
from ppo_mask.checkpoints._runs import LATEST, expand_user, find_run
from ppo_mask.envs import AbstractEnv
from ppo_mask.errors import RunError
from ppo_mask.networks import Model, ModelLike, Policy, UniformActorCritic
from ppo_mask.runner._plan import read_stored
from ppo_mask.runner._reader import merge
from ppo_mask.runner._settings import RunConfig, resolve
from ppo_mask.runner._task import RANDOM, Task, make_parts
from ppo_mask.search import Search
from ppo_mask.training import Trainer

Environment = TypeVar("Environment")


@dataclass(frozen=True)
class TrainedRun(Generic[Environment]):
    """A policy that plays: that of a run, a saved one, or a program's own.

    Attributes:
        name: for titles and tables.
        run_dir: the run's folder, or the saved policy's; None for a policy without weights.
        update: the update number of the policy's checkpoint; None for other policies.
        config: all settings; the program's defaults if the policy is not of a run.
        env: the environment in which the policy plays.
        policy: the policy.
        search: how it searches before each action; None if it does not.
    """

    name: str
    run_dir: RunDir | None
    update: int | None
    config: RunConfig[Environment]
    env: AbstractEnv[Any]
    policy: Policy
    search: Search | None = None

    def __repr__(self) -> str:
        return f"TrainedRun({self.name}, {self.policy})"

    def plays_greedily(self, sample: bool) -> bool:
        """Whether the policy takes its likeliest action; one without weights is always sampled."""
        return not sample and self.run_dir is not None


def load_run(
    task: Task[Environment],
    defaults: RunConfig[Environment],
    place: str = LATEST,
    parent: str = "checkpoints",
) -> TrainedRun[Environment]:
    """Loads a run that this program has trained, or another policy for its environment.

    Args:
        task: the program's task.
        defaults: the program's defaults, which define the environment of a policy without a run.
        place: the run's folder, name or URL; a checkpoint in a run; "latest"; a policy from
            ``save_policy``; or the name of one of the program's own policies, such as "random".
        parent: the folder or URL to search for names and for "latest".

    Raises:
        RunError: there is no such run, or another program trained the run.

    Example:
        ``run = load_run(task, defaults, "checkpoints/first")``, then
        ``pm.evaluate(run.policy, run.env, jax.random.key(0), 100)``.
    """
    offered, found = task.offer(defaults), task.weights_of(place)
    if found is None or is_saved_policy(found):
        config, update, name = resolve(offered), None, Path(place).name
        env, _ = make_parts(task, config)
        if found is not None:
            run_dir = RunDir(expand_user(found))
            policy = load_policy(run_dir.path, _networks(task, env, config))
        else:
            is_random = place == RANDOM
            own = UniformActorCritic(env.num_actions) if is_random else task.policies[place]
            run_dir, policy = None, Policy(cast(ModelLike, own))
    else:
        run_dir, step = find_run(found, parent)
        checkpoint = run_dir.checkpoint(step)
        update, name = checkpoint.step, f"{run_dir.path.name}/{checkpoint.step}"
        try:
            stored = merge(offered, read_stored(run_dir, checkpoint, offered))
        except RunError as error:
            raise RunError(f"run {run_dir.path} is not of this program: {error}") from error
        config = resolve(stored)
        env, _ = make_parts(task, config)
        policy = Policy(load_weights(checkpoint, _model_like(task, env, config)))
    if task.play_env is not None:
        env = task.play_env(config.environment, policy.model)
    return TrainedRun(name, run_dir, update, config, env, policy)


def _model_like(task: Task[Any], env: AbstractEnv[Any], config: RunConfig[Any]) -> Model:
    """Returns shapes in place of a run's model, wrapped as its algorithm does."""
    trainer = Trainer(env, config.algorithm, metrics=task.metrics)

    def model(key: Key[Array, ""]) -> Model:
        return trainer.init(task.new_model(env, config.network, key), key).model

    return eqx.filter_eval_shape(model, jax.random.key(0))


def _networks(task: Task[Any], env: AbstractEnv[Any], config: RunConfig[Any]) -> list[type[Any]]:
    """Lists the classes of the task's networks and readers."""
    found: list[type[Any]] = []
    for name in config.network.offered:
        settings = replace(config.network, network=name)
        make = partial(task.new_model, env, settings)
        with suppress(RunError, ValueError):  # Not every network fits every environment.
            model = eqx.filter_eval_shape(make, jax.random.key(0))
            found += [type(model.reader), type(model.network)]
    return found

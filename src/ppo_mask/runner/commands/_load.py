"""Loads a trained run: its environment, its policy and its settings."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, Key

from ppo_mask.checkpoints import LATEST, RunDir, expand_user, load_policy, load_weights
from ppo_mask.checkpoints._policy import is_saved_policy
from ppo_mask.checkpoints._runs import find_run
from ppo_mask.envs import AbstractEnv
from ppo_mask.errors import RunError
from ppo_mask.networks import Model, Policy
from ppo_mask.runner._plan import read_stored
from ppo_mask.runner._reader import absolute, merge
from ppo_mask.runner._settings import RunConfig, resolve
from ppo_mask.runner._task import Task, make_parts
from ppo_mask.training import Trainer

Environment = TypeVar("Environment")


@dataclass(frozen=True)
class TrainedRun(Generic[Environment]):
    """A trained run.

    Attributes:
        run_dir: the run's folder.
        update: the update number of the policy's checkpoint; None for a saved policy.
        config: all settings.
        env: the environment that evaluations use.
        policy: the trained policy.
    """

    run_dir: RunDir
    update: int | None
    config: RunConfig[Environment]
    env: AbstractEnv[Any]
    policy: Policy

    def __repr__(self) -> str:
        of = "" if self.update is None else f", update {self.update}"
        return f"TrainedRun({self.run_dir.path.name}{of}, {self.policy})"


def load_run(
    task: Task[Environment],
    defaults: RunConfig[Environment],
    place: str = LATEST,
    parent: str = "checkpoints",
) -> TrainedRun[Environment]:
    """Loads a run that this program has trained.

    Args:
        task: the program's task.
        defaults: the program's defaults.
        place: the run's folder, name or URL; a checkpoint in a run; "latest"; or a policy from
            ``save_policy``, also by its name in ``task.policies``. For a saved policy, the defaults
            define the environment.
        parent: the folder or URL to search for names and for "latest".

    Raises:
        RunError: there is no such run, or another program trained the run.

    Example:
        ``run = load_run(task, defaults, "checkpoints/first")``, then
        ``pm.evaluate(run.policy, run.env, jax.random.key(0), 100)``.
    """
    offered, place = task.offer(defaults), str(task.policies.get(place, place))
    if is_saved_policy(place):
        config = resolve(offered)
        env, _ = make_parts(task, config)
        policy = load_policy(place, _networks(task, env, config))
        return TrainedRun(RunDir(expand_user(place)), None, config, env, policy)
    run_dir, step = find_run(place, parent)
    checkpoint = run_dir.checkpoint(step)
    try:
        stored = merge(offered, read_stored(run_dir, checkpoint, offered))
    except RunError as error:
        raise RunError(f"run {run_dir.path} is not of this program: {error}") from error
    config = absolute(resolve(stored))
    env, _ = make_parts(task, config)
    trainer = Trainer(env, config.algorithm, metrics=task.metrics)

    def model(key: Key[Array, ""]) -> Model:
        return trainer.init(task.new_model(env, config.network, key), key).model

    like = eqx.filter_eval_shape(model, jax.random.key(0))
    policy = Policy(load_weights(checkpoint, like))
    return TrainedRun(run_dir, checkpoint.step, config, env, policy)


def _networks(task: Task[Any], env: AbstractEnv[Any], config: RunConfig[Any]) -> list[type[Any]]:
    """Lists the classes of the task's networks and readers."""

    def made(name: str) -> Model:
        settings = replace(config.network, network=name)
        make = partial(task.new_model, env, settings)
        return eqx.filter_eval_shape(make, jax.random.key(0))

    models = map(made, config.network.offered)
    return [type(part) for model in models for part in (model.reader, model.network)]

"""The callbacks of a run: logs, warnings, evaluations, checkpoints."""

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, TypeVar

from ppo_mask.callbacks import (
    ConsoleLog,
    Evaluator,
    HealthChecks,
    JsonLines,
    Saver,
    TensorBoard,
    WandB,
)
from ppo_mask.checkpoints import RunDir
from ppo_mask.devices.processes import is_process_0
from ppo_mask.envs import AbstractEnv
from ppo_mask.errors import warn
from ppo_mask.runner._schema import as_dict
from ppo_mask.runner._settings import RunConfig
from ppo_mask.runner._task import Task, run_keys
from ppo_mask.training import Callback

Environment = TypeVar("Environment")

_PACKAGES = ("ppo-mask", "jax", "equinox", "optax", "orbax-checkpoint", "numpy")


def callbacks_for(
    task: Task[Environment],
    own: Sequence[Callback],
    config: RunConfig[Environment],
    run_dir: RunDir,
    env: AbstractEnv[Any],
    architecture: Mapping[str, Any],
    device: str,
) -> list[Callback]:
    """Makes a run's callbacks. Saving comes last, so that a checkpoint is never newer than the log.

    If there are several processes, process 0 writes the logs, and all processes evaluate and save.
    In a run of several seeds, the seeds have no console tables.
    """
    stored = as_dict(config)
    about = {
        "algorithm": type(config.algorithm).__name__,
        "architecture": architecture,
        "versions": {name: version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
        "device": device,
    }
    log, save = config.logging, config.checkpoints
    callbacks = [*own]
    if log.eval_interval is not None:
        callbacks.append(
            Evaluator(
                env,
                run_keys(config)[1],
                log.eval_interval,
                num_episodes=log.eval_episodes,
                max_steps=log.eval_max_steps,
                num_envs=log.eval_num_envs,
                metrics=task.metrics,
            )
        )
    description = {"config": stored, **about}
    every = save.save_interval_minutes, save.save_interval
    callbacks.append(Saver(run_dir, description, *every))
    if not is_process_0():
        return callbacks
    table = ConsoleLog(task.console_columns, path=run_dir.text_log)
    logs: list[Callback] = [table, HealthChecks()]
    if config.run.num_seeds > 1:
        seed = config.run.seed
        logs = [HealthChecks(lambda message: warn(f"seed {seed}, {message}"))]
    logs.append(JsonLines(run_dir.metrics))
    if log.tensorboard:
        logs.append(TensorBoard(run_dir.tensorboard, run_dir.metrics))
    if log.wandb:
        logs.append(WandB(run_dir, log.project, log.entity, stored | about, log.artifact))
    return [*logs, *callbacks]

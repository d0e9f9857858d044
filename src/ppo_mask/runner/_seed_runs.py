"""Several seeds of the command line: one compiled program, and a run's folder for each of them."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ppo_mask.callbacks import ConsoleLog, HealthChecks, Mirror, make_sure, print_banner
from ppo_mask.checkpoints import RunFolder, check_new_run, create_run_folder
from ppo_mask.checkpoints.bucket import Bucket, claim
from ppo_mask.devices.processes import is_multiprocess
from ppo_mask.envs import AbstractEnv, Curriculum
from ppo_mask.errors import RunError, warn
from ppo_mask.networks import AbstractActorCritic
from ppo_mask.runner._plan import settings_to_store
from ppo_mask.runner._settings import RunConfig
from ppo_mask.runner._task import Task, ppo_config, run_keys, total_updates
from ppo_mask.runner._wiring import Outcome, callbacks_for
from ppo_mask.training import Callback, Trainer, init_seeds, select_seed, train_seeds

Environment = TypeVar("Environment")


def execute_seeds(
    task: Task[Environment],
    config: RunConfig[Environment],
    env: AbstractEnv[Any],
    curriculum: Curriculum | None,
    bucket: Bucket | None = None,
) -> str:
    """Trains ``--num-seeds`` runs side by side, of the seeds from ``--seed`` on.

    Each has a folder of its own, and is what ``--seed`` of it alone would be; so any of them can be
    resumed, watched and evaluated like any other run.

    Returns:
        Why it ended: "finished", or a signal's name.

    Raises:
        RunError: it cannot be; nothing has been written.
        TrainingError: see :func:`train_seeds` and :func:`ppo_mask.runner.execute`.
    """
    run, ppo = config.run, ppo_config(config.training)
    if is_multiprocess():
        raise RunError("--num-seeds does not go with several processes: give each its --seed")
    first, count = config.training.seed, run.num_seeds
    configs = [
        dataclasses.replace(config, training=dataclasses.replace(config.training, seed=seed))
        for seed in range(first, first + count)
    ]
    keys = [run_keys(each) for each in configs]

    def make_model(key: Array) -> AbstractActorCritic:
        return task.new_model(env, config.network, key)

    trainer = Trainer(env, ppo, metrics=task.metrics, curriculum=curriculum)
    states = init_seeds(trainer, make_model, jnp.stack([key for key, _ in keys]))
    folders = _folders(config, None if bucket is None else bucket.runs())
    device = f"1 x {jax.devices()[0].device_kind}"
    for each, folder in zip(configs, folders, strict=True):
        folder.write_config(settings_to_store(each))
    if bucket is not None:
        claim(bucket, folders)
    callbacks: list[list[Callback]] = []
    mirrors: list[Mirror] = []
    for n, (each, folder) in enumerate(zip(configs, folders, strict=True)):
        state, evaluation_key = select_seed(states, n), keys[n][1]
        health = HealthChecks(_named(f"seed {each.training.seed}"))
        others = callbacks_for(task, each, folder, env, state, evaluation_key, device, alone=False)
        mine = [] if bucket is None else [Mirror(bucket, folder)]
        callbacks.append([health, *others, *mine])
        mirrors += mine
    updates = total_updates(config, ppo)
    print_banner(
        {
            "runs": f"{folders[0].path} to {folders[-1].path.name}, one per seed",
            **({} if bucket is None else {"bucket": bucket.url}),
            "device": device,
            "until": f"update {updates:,}, {updates * ppo.batch_size:,} steps of each seed",
        }
    )
    outcome = Outcome()
    train_seeds(
        trainer,
        states,
        config.training.total_timesteps,
        callbacks=callbacks,
        of_all=[ConsoleLog({"± seeds": "seeds/return_std", **task.console_columns}), outcome],
        log_interval=config.logging.log_interval,
    )
    make_sure(mirrors)
    return outcome.reason


def _folders(config: RunConfig[Any], taken: Mapping[str, str] | None) -> list[RunFolder]:
    run, first = config.run, config.training.seed
    parent = Path(run.checkpoint_dir)
    suffixes = [
        "-".join(filter(None, (run.run_suffix, f"seed{seed}")))
        for seed in range(first, first + run.num_seeds)
    ]
    if run.run_name is not None:
        for suffix in suffixes:
            check_new_run(parent / f"{run.run_name}-{suffix}", taken)
    folders = [create_run_folder(parent, run.run_name, suffixes[0], taken)]
    name = folders[0].path.name.removesuffix(f"-{suffixes[0]}")
    return folders + [create_run_folder(parent, name, suffix) for suffix in suffixes[1:]]


def _named(seed: str) -> Callable[[str], None]:
    return lambda message: warn(f"{seed}, {message}")

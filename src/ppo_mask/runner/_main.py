"""A whole run for an environment of one's own: flags, folder, logs, checkpoints, resume."""

import dataclasses
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
from jax.sharding import Mesh
from jaxtyping import Array, Key

from ppo_mask.callbacks import Mirror, Profiler, log_in, make_sure, print_banner
from ppo_mask.checkpoints import (
    RunFolder,
    cache_folder,
    copy_run,
    create_run_folder,
    read_description,
    restore,
)
from ppo_mask.checkpoints.bucket import claim, forget_after, push
from ppo_mask.devices import cpu as cores
from ppo_mask.devices.processes import (
    HEARTBEAT_SECONDS,
    all_agree,
    is_first,
    is_multiprocess,
    text_from_first,
    wait_for_all,
)
from ppo_mask.devices.sharding import make_mesh
from ppo_mask.envs import AbstractEnv
from ppo_mask.errors import RunError
from ppo_mask.networks import AbstractActorCritic
from ppo_mask.ppo import PPOConfig, ShufflePlan, can_split, check_devices
from ppo_mask.runner._plan import Plan, make_plan, settings_to_store
from ppo_mask.runner._seed_runs import execute_seeds
from ppo_mask.runner._settings import RunConfig, RunSettings, name_flags, resolve
from ppo_mask.runner._task import (
    Task,
    first_model,
    first_state,
    mlp_for,
    ppo_config,
    run_keys,
    total_updates,
)
from ppo_mask.runner._tune import SIZES, fastest
from ppo_mask.runner._wiring import Outcome, callbacks_for
from ppo_mask.training import Trainer, TrainingError, TrainState

__all__ = ["Task", "enable_compilation_cache", "execute", "main", "mlp_for"]

Environment = TypeVar("Environment")


def main(
    task: Task[Environment],
    defaults: RunConfig[Environment],
    arguments: Sequence[str] | None = None,
    description: str = "Trains a policy with PPO.",
    prog: str | None = None,
) -> int:
    """Trains as the command line asks; a program is ``raise SystemExit(main(task, defaults))``.

    Whatever the user can put right is one line on standard error.

    Args:
        task: what is to be learned.
        defaults: of all settings.
        arguments: the command line; None for the process's own.
        description: what the program does, for ``--help``.
        prog: what the program is called there; None for its file's name.

    Returns:
        The exit code: 0 at the end of the run, 128 + n if signal n ended it (in good order), 2 if
        nothing was done, 1 if training broke off or its end did not come into the bucket.
    """
    try:
        plan = make_plan(task.offer(defaults), arguments, description, prog)
        enable_compilation_cache()
        reason = execute(task, plan)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 128 + signal.Signals[reason] if reason in signal.Signals.__members__ else 0


def execute(task: Task[Environment], plan: Plan[Environment]) -> str:
    """Does what is planned, and returns why it ended: "finished", or a signal's name.

    Raises:
        RunError: what is planned cannot be; nothing has been written.
        TrainingError: see :meth:`Trainer.train`; or the run's end is in its local folder and
            could not be copied to its bucket.
    """
    config, bucket = plan.config, plan.bucket
    ppo = ppo_config(config.training)
    if plan.folder is not None and plan.update >= total_updates(config, ppo):
        print(f"nothing to do: {plan.folder.path} has {plan.update * ppo.batch_size:,} steps")
        if bucket is not None and plan.copy is None:
            push(bucket, plan.folder)
        return "finished"
    try:
        env = task.make_env(config.environment)
        curriculum = task.curriculum(config.environment)
    except ValueError as error:
        raise RunError(str(error)) from error
    if not all_agree(plan.update):
        raise RunError("the processes found different checkpoints; --checkpoint-dir must be shared")
    if config.logging.wandb and is_first():
        log_in()
    run_key, evaluation_key = run_keys(config)
    model = first_model(task, config.network, env, run_key)
    shuffle_plan = _shuffle_plan(ppo, model)
    mesh = None if config.run.num_seeds > 1 else _mesh(config.run, shuffle_plan)
    if config.run.auto_tune:
        plan = dataclasses.replace(plan, config=_tuned(task, config, env, model, run_key, mesh))
        config, ppo = plan.config, ppo_config(plan.config.training)
        shuffle_plan = _shuffle_plan(ppo, model)
    try:
        check_devices(shuffle_plan, 1 if mesh is None else mesh.size)
    except ValueError as error:
        raise RunError(f"{name_flags(str(error))}; --num-devices says how many to use") from error
    if config.run.num_seeds > 1:
        return execute_seeds(task, config, env, curriculum, bucket)
    updates = total_updates(config, ppo)
    profiled = _profiled_update(plan, updates)
    trainer = Trainer(env, ppo, metrics=task.metrics, curriculum=curriculum, mesh=mesh)
    folder, state = _open(plan, trainer, model, run_key)
    device = f"{1 if mesh is None else mesh.size} x {jax.devices()[0].device_kind}"
    if is_first():
        _introduce(plan, ppo, folder, updates, device)
    callbacks = callbacks_for(task, config, folder, env, state, evaluation_key, device)
    if profiled is not None and is_first():
        callbacks.insert(0, Profiler(folder.profile, profiled))
    mirrors = [] if bucket is None else [Mirror(bucket, folder)]
    outcome = Outcome()
    try:
        trainer.train(
            state,
            config.training.total_timesteps,
            callbacks=[*callbacks, *mirrors, outcome],
            log_interval=config.logging.log_interval,
            debug_nans=config.run.debug_nans,
        )
    except TrainingError as error:
        newest = folder.checkpoints.newest()
        if newest is None:
            kept = "nothing had been saved yet (--save-interval saves every so many updates)"
        else:
            kept = f"the last good checkpoint is {folder.checkpoints.path(newest)}"
        raise TrainingError(f"{error}; {kept}") from error
    make_sure(mirrors)
    return outcome.reason


def _mesh(run: RunSettings, shuffle_plan: ShufflePlan) -> Mesh | None:
    if is_multiprocess() and (run.num_devices is not None or run.auto_tune):
        flag = "--auto-tune" if run.auto_tune else "--num-devices"
        raise RunError(f"{flag} does not go with several processes, which use all their devices")
    try:
        count = run.num_devices
        if count is None and not is_multiprocess():
            count = cores.best_count(shuffle_plan.num_envs, lambda n: can_split(shuffle_plan, n))
        return make_mesh(count)
    except ValueError as error:
        raise RunError(str(error).replace("num_devices", "--num-devices")) from error


def _shuffle_plan(ppo: PPOConfig, model: AbstractActorCritic) -> ShufflePlan:
    try:
        return ShufflePlan.make(ppo, model)
    except ValueError as error:
        raise RunError(name_flags(str(error))) from error


def _profiled_update(plan: Plan[Any], total_updates: int) -> int | None:
    asked = plan.config.run.profile
    if asked is None:
        return None
    update = asked or min(plan.update + 3, total_updates)
    if not plan.update < update <= total_updates:
        raise RunError(
            f"--profile must be one of the updates to come, {plan.update + 1} to {total_updates}, "
            f"got {update}"
        )
    return update


def _tuned(
    task: Task[Environment],
    config: RunConfig[Environment],
    env: AbstractEnv[Any],
    model: AbstractActorCritic,
    key: Key[Array, ""],
    mesh: Mesh | None,
) -> RunConfig[Environment]:
    """The settings with as many environments as these devices do best with."""
    curriculum = task.curriculum(config.environment)

    def sized(num_envs: int) -> RunConfig[Environment]:
        free = {"num_minibatches": None, "update_epochs": None}
        training = dataclasses.replace(config.training, num_envs=num_envs, **free)
        return resolve(dataclasses.replace(config, training=training))

    def trainer(num_envs: int) -> Trainer:
        ppo = ppo_config(sized(num_envs).training)
        return Trainer(env, ppo, metrics=task.metrics, curriculum=curriculum, mesh=mesh)

    best = fastest(map(trainer, SIZES), lambda trainer: first_state(trainer, model, key))
    return sized(best.config.num_envs)


def _open(
    plan: Plan[Any], trainer: Trainer, model: AbstractActorCritic, key: Key[Array, ""]
) -> tuple[RunFolder, TrainState]:
    """The run's folder and where the run begins or resumes."""

    def begin(key: Key[Array, ""]) -> TrainState:
        return first_state(trainer, model, key)

    if plan.folder is None:
        state = begin(key)
        run = plan.config.run

        def create() -> str:
            parent = Path(run.checkpoint_dir)
            taken = None if plan.bucket is None else plan.bucket.runs()
            return str(create_run_folder(parent, run.run_name, run.run_suffix, taken).path)

        folder = RunFolder(Path(text_from_first(create, "make the run's folder")))
    else:
        folder, copy = plan.folder, plan.copy
        like = eqx.filter_eval_shape(begin, key)
        state = restore(folder.checkpoints.path(plan.update), like)
        wait_for_all("restored")
        if copy is not None:
            old = folder
            made = text_from_first(lambda: str(copy_run(old, plan.update, copy).path), "copy it")
            folder = RunFolder(Path(made))
        elif plan.bucket is not None:
            forget_after(plan.bucket, folder, plan.update)
        if is_first():
            folder.checkpoints.discard_after(plan.update)
    if is_first():
        folder.write_config(settings_to_store(plan.config))
    if plan.bucket is not None and (plan.folder is None or plan.copy is not None):
        claim(plan.bucket, [folder])
    return folder, state


def enable_compilation_cache() -> None:
    """Keeps compiled programs in ``~/.cache/ppo_mask/jax``, if JAX has not been told otherwise."""
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))


def _introduce(
    plan: Plan[Any], ppo: PPOConfig, folder: RunFolder, total_updates: int, device: str
) -> None:
    since = f", from update {plan.update}" if plan.folder is not None else ""
    if plan.folder is not None:
        since += "" if plan.copy is None else f" of {plan.folder.path}"
        then = read_description(folder.checkpoints.path(plan.update))["device"]
        if then != device:
            print(f"note: saved on {then}, goes on with {device}: sums are rounded differently")
    rows = {
        "run": f"{folder.path}{since}",
        **({} if plan.bucket is None else {"bucket": f"{plan.bucket.url}/{folder.path.name}"}),
        "device": device,
        "batch": f"{ppo.num_envs} envs x {ppo.num_steps} steps = {ppo.batch_size:,}; "
        f"{ppo.num_minibatches} minibatches, {ppo.update_epochs} epochs",
        "until": f"update {total_updates:,}, {total_updates * ppo.batch_size:,} steps",
    }
    if is_multiprocess():
        rows["others"] = (
            f"{jax.process_count() - 1}; one that is lost ends all of them within "
            f"{HEARTBEAT_SECONDS} s: go on with --resume {folder.path}"
        )
    print_banner(rows)

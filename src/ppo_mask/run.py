"""A whole run for an environment of one's own: flags, folder, logs, checkpoints, resume."""

import dataclasses
import os
import platform
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, TypeVar, final

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Key

from ppo_mask import run_folder, tune
from ppo_mask.callbacks import Callback, Run
from ppo_mask.checkpoint import read_description, restore
from ppo_mask.config import PPOConfig
from ppo_mask.console import ConsoleLog
from ppo_mask.curriculum import Curriculum
from ppo_mask.env import AbstractEnv
from ppo_mask.errors import RunError
from ppo_mask.evaluator import Evaluator
from ppo_mask.health_checks import HealthChecks
from ppo_mask.metrics import Metric
from ppo_mask.minibatches import check_devices
from ppo_mask.networks import AbstractActorCritic, MLPActorCritic
from ppo_mask.plan import Plan, make_plan, settings_to_store
from ppo_mask.policy import architecture_of
from ppo_mask.processes import all_agree, connect, is_first, several, text_from_first, wait_for_all
from ppo_mask.profiler import Profiler
from ppo_mask.run_folder import RunFolder
from ppo_mask.saver import Saver
from ppo_mask.settings import NetworkSettings, RunConfig, RunSettings, TrainingSettings, resolve
from ppo_mask.sharding import make_mesh
from ppo_mask.sinks import JsonLines, TensorBoard
from ppo_mask.state import TrainState, init
from ppo_mask.train import TrainingError, train
from ppo_mask.wandb_sink import WandB, log_in

Environment = TypeVar("Environment")

_PACKAGES = ("ppo-mask", "jax", "equinox", "optax", "orbax-checkpoint", "numpy")


def mlp_for(
    env: AbstractEnv[Any], network: NetworkSettings, key: Key[Array, ""]
) -> AbstractActorCritic:
    """The default network for an environment.

    Raises:
        RunError: the observation is not one flat array of floats.
    """
    observation = jax.eval_shape(env.reset, key)[1].observation
    leaves = jax.tree.leaves(observation)
    if len(leaves) != 1 or leaves[0].ndim != 1 or not np.issubdtype(leaves[0].dtype, np.floating):
        raise RunError(
            "the default network needs an observation that is one flat array of floats; give "
            f"make_model for {observation}"
        )
    return MLPActorCritic(
        leaves[0].shape[0], env.num_actions, network.hidden_dim, network.num_layers, key=key
    )


def _no_curriculum(environment: object) -> None:
    del environment


@dataclasses.dataclass(frozen=True)
class Task(Generic[Environment]):
    """What is to be learned.

    Attributes:
        make_env: the environment from its settings; a ValueError is told as a wrong setting.
        make_model: the network for it.
        metrics: figures of its own to log.
        figures: heading to figure, for the columns of the console's table.
        curriculum: from the environment's settings, how it changes as training goes on. Evaluation
            is always in the one that ``make_env`` makes.
    """

    make_env: Callable[[Environment], AbstractEnv[Any]]
    make_model: Callable[[AbstractEnv[Any], NetworkSettings, Array], AbstractActorCritic] = mlp_for
    metrics: Mapping[str, Metric] = dataclasses.field(default_factory=dict[str, Metric])
    figures: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    curriculum: Callable[[Environment], Curriculum | None] = _no_curriculum


def main(
    task: Task[Environment],
    defaults: RunConfig[Environment],
    arguments: Sequence[str] | None = None,
    description: str = "Trains a policy with PPO.",
) -> int:
    """Trains as the command line asks; a program is ``raise SystemExit(main(task, defaults))``.

    Whatever the user can put right is one line on standard error.

    Args:
        task: what is to be learned.
        defaults: of all settings.
        arguments: the command line; None for the process's own.
        description: what the program does, for ``--help``.

    Returns:
        The exit code: 0 at the end of the run, 128 + n if signal n ended it (in good order), 2 if
        nothing was done, 1 if training broke off.
    """
    try:
        plan = make_plan(defaults, arguments, description)
        connect(plan.config.run.distributed)
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
        TrainingError: see :func:`ppo_mask.train.train`.
    """
    config = plan.config
    ppo = ppo_config(config.training)
    if plan.folder is not None and plan.update >= _total_updates(config, ppo):
        print(f"nothing to do: {plan.folder.path} has {plan.update * ppo.batch_size:,} steps")
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
    mesh = _mesh(config.run)
    run_key, evaluation_key = jax.random.split(jax.random.key(config.training.seed))
    if config.run.auto_tune:
        plan = dataclasses.replace(plan, config=_tuned(task, config, env, run_key, mesh))
        config, ppo = plan.config, ppo_config(plan.config.training)
    try:
        check_devices(ppo, 1 if mesh is None else mesh.size)
    except ValueError as error:
        raise RunError(f"{error}; --num-devices says how many to use") from error
    total_updates = _total_updates(config, ppo)
    profiled = _profiled_update(plan, total_updates)
    folder, state = _open(task, plan, env, ppo, run_key)
    device = f"{1 if mesh is None else mesh.size} x {jax.devices()[0].device_kind}"
    if is_first():
        _introduce(plan, ppo, folder, total_updates, device)
    callbacks = _callbacks(task, config, folder, env, state, evaluation_key, device)
    if profiled is not None and is_first():
        callbacks.insert(0, Profiler(folder.profile, profiled))
    outcome = _Outcome()
    try:
        train(
            env,
            state,
            ppo,
            total_updates,
            metrics=task.metrics,
            curriculum=curriculum,
            callbacks=[*callbacks, outcome],
            log_interval=config.logging.log_interval,
            debug_nans=config.run.debug_nans,
            mesh=mesh,
        )
    except TrainingError as error:
        newest = folder.checkpoints.newest()
        if newest is None:
            kept = "nothing had been saved yet (--save-interval saves every so many updates)"
        else:
            kept = f"the last good checkpoint is {folder.checkpoints.path(newest)}"
        raise TrainingError(f"{error}; {kept}") from error
    return outcome.reason


def _mesh(run: RunSettings) -> Mesh | None:
    if several() and (run.num_devices is not None or run.auto_tune):
        flag = "--auto-tune" if run.auto_tune else "--num-devices"
        raise RunError(f"{flag} does not go with several processes, which use all their devices")
    try:
        return make_mesh(run.num_devices)
    except ValueError as error:
        raise RunError(str(error).replace("num_devices", "--num-devices")) from error


def _total_updates(config: RunConfig[Any], ppo: PPOConfig) -> int:
    return -(-config.training.total_timesteps // ppo.batch_size)


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


def _begin(
    task: Task[Environment],
    config: RunConfig[Environment],
    env: AbstractEnv[Any],
    ppo: PPOConfig,
    key: Key[Array, ""],
) -> TrainState:
    """A run's first state."""
    model_key, init_key = jax.random.split(key)
    model = task.make_model(env, config.network, model_key)
    curriculum = task.curriculum(config.environment)
    return init(env, model, ppo, init_key, metrics=task.metrics, curriculum=curriculum)


def _tuned(
    task: Task[Environment],
    config: RunConfig[Environment],
    env: AbstractEnv[Any],
    key: Key[Array, ""],
    mesh: Mesh | None,
) -> RunConfig[Environment]:
    """The settings with as many environments as these devices do best with."""

    def sized(num_envs: int) -> RunConfig[Environment]:
        free = {"num_minibatches": None, "update_epochs": None}
        training = dataclasses.replace(config.training, num_envs=num_envs, **free)
        return resolve(dataclasses.replace(config, training=training))

    def begin(ppo: PPOConfig) -> TrainState:
        return eqx.filter_jit(lambda key: _begin(task, config, env, ppo, key))(key)

    sizes = (ppo_config(sized(n).training) for n in tune.SIZES)
    curriculum = task.curriculum(config.environment)
    best = tune.fastest(env, sizes, begin, task.metrics, curriculum=curriculum, mesh=mesh)
    return sized(best.num_envs)


def _open(
    task: Task[Environment],
    plan: Plan[Environment],
    env: AbstractEnv[Any],
    ppo: PPOConfig,
    key: Key[Array, ""],
) -> tuple[RunFolder, TrainState]:
    """The run's folder and where the run begins or goes on."""

    def begin(key: Key[Array, ""]) -> TrainState:
        return _begin(task, plan.config, env, ppo, key)

    if plan.folder is None:
        state = eqx.filter_jit(begin)(key)
        run = plan.config.run

        def create() -> str:
            parent = Path(run.checkpoint_dir)
            return str(run_folder.create(parent, run.run_name, run.run_suffix).path)

        folder = RunFolder(Path(text_from_first(create, "make the run's folder")))
    else:
        folder = plan.folder
        like = eqx.filter_eval_shape(begin, key)
        state = restore(folder.checkpoints.path(plan.update), like)
        wait_for_all("restored")
        if is_first():
            folder.checkpoints.discard_after(plan.update)
    if is_first():
        folder.write_config(settings_to_store(plan.config))
    return folder, state


def _callbacks(
    task: Task[Environment],
    config: RunConfig[Environment],
    folder: RunFolder,
    env: AbstractEnv[Any],
    state: TrainState,
    evaluation_key: Key[Array, ""],
    device: str,
) -> list[Callback]:
    """What looks at the run. Saving comes last: a checkpoint is never newer than the log.

    Of several processes the first writes the logs; all evaluate, and save together.
    """
    stored = settings_to_store(config)
    about = {
        "architecture": architecture_of(state.model),
        "versions": {name: version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
        "device": device,
    }
    log, save = config.logging, config.checkpoints
    callbacks: list[Callback] = []
    if is_first():
        callbacks += [ConsoleLog(task.figures), HealthChecks(), JsonLines(folder.metrics)]
    if log.tensorboard and is_first():
        callbacks.append(TensorBoard(folder.tensorboard, folder.metrics))
    if log.wandb and is_first():
        store = folder.checkpoints if log.artifact else None
        callbacks.append(
            WandB(
                folder.path,
                log.project,
                log.entity,
                config=stored | about,
                history=folder.metrics,
                checkpoints=store,
            )
        )
    if log.eval_interval is not None:
        callbacks.append(
            Evaluator(
                env,
                evaluation_key,
                log.eval_interval,
                num_episodes=log.eval_episodes,
                max_steps=log.eval_max_steps,
                metrics=task.metrics,
            )
        )
    callbacks.append(
        Saver(
            folder.checkpoints,
            {"config": stored, **about},
            save.save_interval_minutes,
            save.save_interval,
        )
    )
    return callbacks


def ppo_config(training: TrainingSettings) -> PPOConfig:
    """The learner's config for settings that :func:`ppo_mask.settings.resolve` has filled in."""
    values = dataclasses.asdict(training)
    for name in ("total_timesteps", "seed"):
        del values[name]
    return PPOConfig(learning_rate=values.pop("lr"), **values)


def enable_compilation_cache() -> None:
    """Keeps compiled programs in ``~/.cache/ppo_mask/jax``, if JAX has not been told otherwise."""
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        jax.config.update("jax_compilation_cache_dir", str(Path(base) / "ppo_mask" / "jax"))


def _introduce(
    plan: Plan[Any], ppo: PPOConfig, folder: RunFolder, total_updates: int, device: str
) -> None:
    since = f", from update {plan.update}" if plan.folder is not None else ""
    if plan.folder is not None:
        then = read_description(folder.checkpoints.path(plan.update))["device"]
        if then != device:
            print(f"note: saved on {then}, goes on with {device}: sums are rounded differently")
    rows = {
        "run": f"{folder.path}{since}",
        "device": device,
        "batch": f"{ppo.num_envs} envs x {ppo.num_steps} steps = {ppo.batch_size:,}; "
        f"{ppo.num_minibatches} minibatches, {ppo.update_epochs} epochs",
        "until": f"update {total_updates:,}, {total_updates * ppo.batch_size:,} steps",
    }
    for name, text in rows.items():
        print(f"{name:8}{text}")
    print("compiling ...", flush=True)


@final
class _Outcome(Callback):
    reason: str = "finished"

    def on_stop(self, run: Run, state: TrainState, reason: str) -> None:
        self.reason = reason

"""From a command line to a whole run: flags, folders, logs, checkpoints, resume."""

import contextlib
import itertools
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Key

from ppo_mask.callbacks import ConsoleLog, Profiler, Saver
from ppo_mask.callbacks._console import print_banner
from ppo_mask.callbacks._wandb import log_in
from ppo_mask.checkpoints import RunDir, architecture_of
from ppo_mask.checkpoints._lock import hold
from ppo_mask.checkpoints._runs import cache_folder
from ppo_mask.devices import cpu as cores
from ppo_mask.devices.processes import (
    HEARTBEAT_SECONDS,
    all_agree,
    broadcast_text_from_0,
    is_multiprocess,
    is_process_0,
    on_all_processes,
    on_process_0,
    wait_for_all,
)
from ppo_mask.devices.sharding import make_mesh
from ppo_mask.envs import AbstractEnv
from ppo_mask.envs._host import host_env_in
from ppo_mask.errors import RunError, describe_error, warn
from ppo_mask.networks import Model, describe_network
from ppo_mask.runner import commands
from ppo_mask.runner._plan import SHARED, Plan, make_plan, with_num_envs
from ppo_mask.runner._reader import as_run_error
from ppo_mask.runner._schema import as_dict
from ppo_mask.runner._settings import LoggingSettings, RunConfig, RunSettings, resolve
from ppo_mask.runner._streams import outliving_the_screen
from ppo_mask.runner._task import (
    Task,
    first_model,
    make_parts,
    make_trainer,
    run_keys,
    with_initial_policy,
)
from ppo_mask.runner._tune import SIZES, fastest
from ppo_mask.runner._wiring import callbacks_for
from ppo_mask.training import (
    AbstractAlgorithm,
    Curriculum,
    PerSeed,
    Trainer,
    TrainingError,
    TrainState,
)
from ppo_mask.training._lower import traced_ahead
from ppo_mask.training._seeds import model_of_one_seed

Environment = TypeVar("Environment")


def main(
    task: Task[Environment],
    defaults: RunConfig[Environment],
    arguments: Sequence[str] | None = None,
    description: str = "Trains a policy.",
    prog: str | None = None,
    with_commands: bool = True,
) -> int:
    """Runs a training program's command line: ``raise SystemExit(main(task, defaults))``.

    The first word is the command: ``train`` (the default), ``evaluate``, ``watch``, ``plot``
    or ``inspect``. An error that the user can correct is one line on
    standard error.

    Args:
        task: the environment, its networks and its metrics.
        defaults: the defaults of all settings.
        arguments: the words after the program's name; None for ``sys.argv``.
        description: what the program does, for ``--help``.
        prog: the program's name, for ``--help``; None for the name of the program's file.
        with_commands: whether the first word may be a command.

    Returns:
        The exit code: 0 if the run finished; 128 + n if the run saved and stopped after signal n;
        2 if nothing was done; 1 if training failed or the last state could not be saved.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    first = words[0] if words else "train"
    # A setting of the program may have the name, too, and then takes a value.
    is_command = words == ["--version"] or not first.startswith("-")
    if with_commands and is_command and first != "train":
        parser = commands.of_a_program(task, defaults, prog)
        return commands.run_commands(parser, words, enable_compilation_cache)
    if with_commands:
        words = words[1:] if words[:1] == ["train"] else words
        others = "Other commands: evaluate, watch, export, plot, inspect"
        description += f"\n\n{others}; COMMAND --help shows their options."
    plan = None
    with outliving_the_screen():
        try:
            plan = make_plan(task.offer(defaults), words, description, prog, task.presets)
            enable_compilation_cache()
            reason = execute(task, plan)
        except (RunError, TrainingError, OSError) as error:
            print(f"error: {describe_error(error)}", file=sys.stderr)
            return 2 if plan is None or isinstance(error, RunError) else 1
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        return 128 + signal.Signals[reason] if reason in signal.Signals.__members__ else 0


def execute(task: Task[Environment], plan: Plan[Environment]) -> str:
    """Executes a plan: one run, or several seeds in one compiled program.

    Each seed has a folder of its own, and can be resumed, watched and evaluated like any run.

    Args:
        task: the environment, its networks and its metrics.
        plan: a plan from :func:`make_plan`.

    Returns:
        Why training ended: "finished", or a signal's name.

    Raises:
        RunError: the plan cannot be executed; nothing has been written.
        TrainingError: training failed (see :meth:`Trainer.train`), the last state could not be
            saved, or a run could not be copied to its bucket.
    """
    with contextlib.ExitStack() as held:
        return _execute(task, plan, held)


def _execute(task: Task[Environment], plan: Plan[Environment], held: contextlib.ExitStack) -> str:
    if plan.run_dir is not None and plan.update >= plan.total_updates:
        steps = plan.update * plan.config.algorithm.batch_size
        print(f"nothing to do: {plan.run_dir.path} has {steps:,} steps")
        return "finished"
    plan, trainer, make_model = _prepared(task, plan)
    profiled = _profiled_update(plan)
    configs = plan.of_seeds()
    state = _first_or_restored(plan, trainer, make_model, [run_keys(x)[0] for x in configs])
    model = model_of_one_seed(state)
    try:
        architecture = architecture_of(model)
    except ValueError as error:
        raise RunError(str(error)) from error
    own = [task.callbacks(each) for each in configs]
    run_dirs = _open_run_dirs(plan, configs, held)
    device = f"{1 if trainer.mesh is None else trainer.mesh.size} x {jax.devices()[0].device_kind}"
    if is_process_0():
        _print_facts(plan, trainer, state, model, run_dirs, device)
        _warn_of_intervals(plan)
    callbacks = [
        callbacks_for(task, mine, each, run_dir, trainer.env, architecture, device)
        for mine, each, run_dir in zip(own, configs, run_dirs, strict=True)
    ]
    if profiled is not None and is_process_0():
        callbacks[0].insert(0, Profiler(run_dirs[0].profile, profiled))
    watching = callbacks[0]
    if state.update.ndim:
        columns = {"± seeds": "seeds/return_std", **task.console_columns}
        watching = [PerSeed(callbacks), ConsoleLog(columns)]
    try:
        trainer.train(
            state,
            plan.config.run.total_timesteps,
            callbacks=watching,
            log_interval=plan.config.logging.log_interval,
            debug_nans=plan.config.run.debug_nans,
        )
    except TrainingError as error:
        raise TrainingError(f"{error}; {run_dirs[0].what_is_kept()}") from error
    savers = (each for each in itertools.chain(*callbacks) if isinstance(each, Saver))
    reason, *_ = [saver.outcome() for saver in savers]
    return reason


def _prepared(
    task: Task[Environment], plan: Plan[Environment]
) -> tuple[Plan[Environment], Trainer, Callable[[Key[Array, ""]], Model]]:
    """Makes the environment and the trainer of a run, after all that can be refused is checked.

    Returns:
        The plan, with the sizes of ``--auto-tune``; the trainer; and a function that makes the
        model to begin with.
    """
    config = plan.config
    if (name := config.run.run_name) in task.policy_names:
        raise RunError(f"--run-name cannot be {name}: this program has such a policy")
    env, curriculum = make_parts(task, config)
    if not all_agree(plan.update):
        raise RunError(f"the processes found different checkpoints; {SHARED}")
    if config.run.num_seeds > 1 and is_multiprocess():
        raise RunError("--num-seeds does not go with several processes: give each its --seed")
    if config.run.num_seeds > 1 and host_env_in(env) is not None:
        raise RunError(
            "--num-seeds does not go with an environment that lives in Python: start a run for "
            "each seed"
        )
    if config.logging.wandb:
        on_process_0(log_in, "log in to W&B")
    make_model = first_model(task, config.network, env)
    model_key, init_key = jax.random.split(run_keys(config)[0])  # As in `_first_or_restored`.
    model = eqx.filter_eval_shape(make_model, model_key)
    if config.run.auto_tune:
        model = make_model(model_key)
        plan = replace(plan, config=_tuned(task, plan.config, env, curriculum, model, init_key))
        config = plan.config
    mesh = _mesh(config.run, config.algorithm, model)
    trainer = make_trainer(task, config, env, curriculum, mesh)
    if plan.checkpoint is None:
        load = partial(with_initial_policy, task, config.network, make_model, trainer.init)
        make_model = on_all_processes(load, "load the initial policy")
    return plan, trainer, make_model


def _open_run_dirs(
    plan: Plan[Environment], configs: Sequence[RunConfig[Environment]], held: contextlib.ExitStack
) -> list[RunDir]:
    """Makes the folders of new runs, or takes over that of the run to resume.

    All processes must call this function, and all get the same folders. ``held`` holds the locks on
    the runs.
    """
    opened: list[RunDir] = []

    def open_all() -> str:
        opened.extend(_opened(plan, configs, held))
        return "\0".join(str(each.path) for each in opened)

    wait_for_all("restored")
    paths = broadcast_text_from_0(open_all, "open the run's folder").split("\0")
    return opened or [RunDir(path) for path in paths]


def _opened(
    plan: Plan[Environment], configs: Sequence[RunConfig[Environment]], held: contextlib.ExitStack
) -> list[RunDir]:
    run, old = plan.config.run, plan.run_dir
    if old is None:
        several = len(configs) > 1
        ends = [f"seed{config.run.seed}" if several else None for config in configs]
        run_dirs = plan.runs.create(run.run_name, run.run_suffix, ends, again=bool(run.resume))
    elif plan.copy is not None:
        old.fork(plan.update, plan.copy)
        run_dirs = [plan.copy]
    else:
        run_dirs = [old]
    for run_dir in run_dirs:
        held.enter_context(hold(run_dir.path))
    if old in run_dirs:
        steps = old.steps()
        if plan.update not in steps or (plan.update != steps[-1] and not run.rewind):
            raise RunError(f"run {old.path} has been trained by another process meanwhile")
        old.discard_after(plan.update)
    for config, run_dir in zip(configs, run_dirs, strict=True):
        run_dir.write_config(as_dict(config))
    if run.resume is None or plan.copy is not None:
        plan.runs.claim(run_dirs)
    elif (mirror := run_dirs[0].mirror) is not None:
        mirror.take_over(run_dirs[0].path)
    return run_dirs


def enable_compilation_cache() -> None:
    """Caches compiled programs in ``~/.cache/ppo_mask/jax``, unless JAX already has a cache.

    Without a home folder, this function does nothing, since a run works without a cache.
    """
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        with contextlib.suppress(RunError):
            jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))


def _mesh(run: RunSettings, algorithm: AbstractAlgorithm, model: Model) -> Mesh | None:
    if is_multiprocess() and (run.num_devices is not None or run.auto_tune):
        flag = "--auto-tune" if run.auto_tune else "--num-devices"
        raise RunError(f"{flag} does not go with several processes, which use all their devices")
    try:
        count = run.num_devices
        if count is None and not is_multiprocess():
            count = cores.best_count(algorithm.num_envs, lambda n: _can_split(algorithm, model, n))
        mesh = None if run.num_seeds > 1 else make_mesh(count)
        algorithm.check(model, 1 if mesh is None else mesh.size)
    except ValueError as error:
        raise as_run_error(error) from error
    return mesh


def _can_split(algorithm: AbstractAlgorithm, model: Model, count: int) -> bool:
    try:
        algorithm.check(model, count)
    except ValueError:
        return False
    return True


def _profiled_update(plan: Plan[Any]) -> int | None:
    asked = plan.config.run.profile
    if asked is None:
        return None
    update = asked or min(plan.update + 3, plan.total_updates)
    if not plan.update < update <= plan.total_updates:
        raise RunError(
            f"--profile must be one of the updates to come, {plan.update + 1} to "
            f"{plan.total_updates}, got {update}"
        )
    return update


def _warn_of_intervals(plan: Plan[Any]) -> None:
    """Warns of intervals that are longer than the run, such as those meant to be in steps.

    No error, since a short trial of a long run may have the long run's intervals.
    """
    total, log = plan.total_updates, plan.config.logging
    intervals = {
        "--log-interval": log.log_interval,
        "--eval-interval": log.eval_interval,
        "--save-interval": plan.config.checkpoints.save_interval,
    }
    for flag, updates in intervals.items():
        if updates is not None and updates > max(total, LoggingSettings.log_interval):
            of_steps = max(1, round(updates / plan.config.algorithm.batch_size))
            problem = f"{flag} {updates} counts updates, and the run has {total:,}"
            warn(f"{problem}; {updates:,} steps would be {flag} {of_steps}")


def _tuned(
    task: Task[Environment],
    config: RunConfig[Environment],
    env: AbstractEnv[Any],
    curriculum: Curriculum | None,
    model: Model,
    key: Key[Array, ""],
) -> RunConfig[Environment]:
    """Sets the fastest number of environments on these devices, and the steps that go with it."""

    def sized(num_envs: int) -> RunConfig[Environment]:
        return resolve(with_num_envs(config, num_envs))

    def trainer(num_envs: int) -> Trainer:
        scaled = sized(num_envs)
        mesh = _mesh(config.run, scaled.algorithm, model)
        return make_trainer(task, scaled, env, curriculum, mesh)

    # Every size, and the run itself, begins with the same key.
    best = fastest(map(trainer, SIZES), lambda x: x.init(model, jax.random.clone(key)))
    return sized(best.algorithm.num_envs)


def _first_or_restored(
    plan: Plan[Any],
    trainer: Trainer,
    make_model: Callable[[Key[Array, ""]], Model],
    keys: Sequence[Key[Array, ""]],
) -> TrainState:
    """Makes or restores the state; that of several seeds if there are several keys."""

    def begin(key: Key[Array, ""]) -> TrainState:
        model_key, init_key = jax.random.split(key)
        return trainer.init(make_model(model_key), init_key)

    start: Callable[..., TrainState] = begin
    key = keys[0]
    if len(keys) > 1:
        start, key = eqx.filter_jit(eqx.filter_vmap(begin)), jnp.stack(keys)
    like = eqx.filter_eval_shape(start, key)
    with traced_ahead(trainer, like):
        if (checkpoint := plan.checkpoint) is None:
            return start(key)
        return on_all_processes(lambda: checkpoint.restore(like), "restore the checkpoint")


def _print_facts(
    plan: Plan[Any],
    trainer: Trainer,
    state: TrainState,
    model: Model,
    run_dirs: Sequence[RunDir],
    device: str,
) -> None:
    run_dir, several = run_dirs[0], len(run_dirs) > 1
    facts = {"run": str(run_dir.path)}
    if several:
        facts = {"runs": f"{run_dir.path} to {run_dirs[-1].path.name}, one per seed"}
    if plan.run_dir is not None and plan.checkpoint is not None:
        source = "" if plan.copy is None else f" of {plan.run_dir.path}"
        facts["run"] += f", from update {plan.update}{source}"
        then = plan.checkpoint.about["device"]
        if then != device:
            print(f"note: saved on {then}, resumed on {device}: sums are rounded differently")
    if run_dir.mirror is not None:
        facts["bucket"] = run_dir.mirror.bucket.url if several else run_dir.place
    facts |= {"device": device, **trainer.algorithm.facts()}
    observation = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape[state.update.ndim + 1 :], x.dtype),
        state.rollout.observation,
    )
    facts["network"] = describe_network(model, trainer.env, observation)
    steps = plan.total_updates * trainer.algorithm.batch_size
    each = " of each seed" if several else ""
    facts["until"] = f"update {plan.total_updates:,}, {steps:,} steps{each}"
    if is_multiprocess():
        facts["others"] = (
            f"{jax.process_count() - 1}; one that is lost ends all of them within "
            f"{HEARTBEAT_SECONDS} s: resume with --resume {run_dir.place}"
        )
    print_banner(facts)

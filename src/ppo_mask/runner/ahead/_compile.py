"""A run's program, compiled for devices that are not here."""

import contextlib
import re
import time
from collections.abc import Generator
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from jaxtyping import Array, Key

from ppo_mask.devices.programs import Program
from ppo_mask.devices.sharding import mesh_of
from ppo_mask.devices.topologies import Topology, devices_of, find, versions_for
from ppo_mask.envs import host_env_in
from ppo_mask.errors import RunError
from ppo_mask.ppo import ENVIRONMENT_STEP, GRADIENT_STEP, PPOConfig, ShufflePlan, check_devices
from ppo_mask.runner._settings import RunConfig, describe_batch, name_flags, ppo_config
from ppo_mask.runner._task import Task, first_state, make_parts, make_trainer, require_ppo, run_keys
from ppo_mask.runner.ahead._report import Loop, Memory, Report
from ppo_mask.training import Trainer, TrainState, lower_chunk

Environment = TypeVar("Environment")


def print_program(task: Task[Environment], config: RunConfig[Environment]) -> None:
    """Compiles the program of a run for the devices that ``--compile-for`` names, and reports.

    Args:
        task: what would be learned.
        config: all settings, filled in.

    Raises:
        RunError: it cannot be compiled for them; one line that says why.
    """
    topology = find(config.run.compile_for or "")
    report = compile_ahead(task, config, topology)
    print(report.as_json() if config.run.json else report.as_text())


def compile_ahead(
    task: Task[Environment], config: RunConfig[Environment], topology: Topology
) -> Report:
    """Compiles the program of a run for devices that are not here.

    Args:
        task: what would be learned.
        config: all settings, filled in.
        topology: the devices.

    Raises:
        RunError: the compiler is missing, the environments cannot be split over the devices, the
            program does not fit in their memory, or the environment is not one of JAX.
    """
    ppo, run = ppo_config(config.training), config.run
    env, curriculum = make_parts(task, config.environment)
    if host_env_in(env) is not None:
        raise RunError("--compile-for is for environments in JAX; this one is stepped in Python")
    devices = devices_of(topology)
    if run.num_devices is not None:
        if topology.num_hosts > 1:
            raise RunError("--num-devices does not go with several hosts, which use all they have")
        if run.num_devices > len(devices):
            raise RunError(
                f"--num-devices must be from 1 to {len(devices)} on {topology.name}, "
                f"got {run.num_devices}"
            )
        devices = devices[: run.num_devices]
    key, _ = run_keys(config)
    mesh = mesh_of(devices)
    trainer = require_ppo(make_trainer(task, config, env, curriculum, mesh), "--compile-for")
    began = time.perf_counter()
    state = _shapes(task, config, trainer, key)
    _check_split(ppo, state, topology, len(devices))
    lowered = lower_chunk(trainer, state)
    traced = time.perf_counter()
    compiled = _compile(lowered, topology)
    seconds = traced - began, time.perf_counter() - traced
    program, memory = Program(compiled.as_text() or ""), _memory(compiled, topology)
    steps = {ENVIRONMENT_STEP: ppo.num_steps, GRADIENT_STEP: ppo.gradient_steps}
    loops = {scope: program.loop(scope) for scope in steps}
    environment_step, gradient_step = (
        Loop(
            turns,
            program.collectives(name) if (name := loops[scope]) else [],
            program.kernels(name) if name else None,
        )
        for scope, turns in steps.items()
    )
    return Report(
        topology=topology.name,
        device_kind=devices[0].device_kind,
        num_hosts=topology.num_hosts,
        num_chips=len(devices),
        versions=versions_for(topology),
        batch=describe_batch(ppo),
        trace_seconds=seconds[0],
        compile_seconds=seconds[1],
        memory=memory,
        state_arrays=len(
            [x for x in jax.tree.leaves(state) if isinstance(x, jax.ShapeDtypeStruct)]
        ),
        aliased_arrays=program.num_aliased,
        environment_step=environment_step,
        gradient_step=gradient_step,
        rest=program.collectives(without=[name for name in loops.values() if name]),
        host_transfers=program.host_transfers,
        wide_types=program.wide_types,
    )


def _shapes(
    task: Task[Any], config: RunConfig[Any], trainer: Trainer, key: Key[Array, ""]
) -> TrainState:
    """The first state of the run, without its numbers."""

    def begin(key: Key[Array, ""]) -> TrainState:
        model_key, _ = jax.random.split(key)
        return first_state(trainer, task.new_model(trainer.env, config.network, model_key), key)

    try:
        return eqx.filter_eval_shape(begin, key)
    except ValueError as error:
        raise RunError(name_flags(str(error))) from error


def _check_split(ppo: PPOConfig, state: TrainState, topology: Topology, count: int) -> None:
    try:
        check_devices(ShufflePlan.make(ppo, state.model), count)
    except ValueError as error:
        raise RunError(f"{topology.name}: {name_flags(str(error))}") from error


def _compile(lowered: jax.stages.Lowered, topology: Topology) -> jax.stages.Compiled:
    try:
        with _without_cache():
            return lowered.compile(compiler_options=topology.compiler_options)
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        if "RESOURCE_EXHAUSTED" not in text:
            reason = text.partition("\n")[0]
            raise RunError(f"this cannot be compiled for {topology.name}: {reason}") from error
        # "Used 41.02G of 30.75G hbm", or "temporaries (256.00G) exceeds".
        wanted = re.search(r"[Uu]sed (\d[\d.]*[KMGT])\b|\((\d[\d.]*[KMGT])\) exceeds", text)
        size = f"{wanted[1] or wanted[2]}iB" if wanted else ""
        raise _does_not_fit(topology, size) from error


def _memory(compiled: jax.stages.Compiled, topology: Topology) -> Memory:
    used = cast(Any, compiled.memory_analysis())
    memory = Memory(
        topology.memory,
        used.argument_size_in_bytes,
        used.output_size_in_bytes,
        used.alias_size_in_bytes,
        used.temp_size_in_bytes,
        used.generated_code_size_in_bytes,
    )
    if memory.needed > memory.available:  # What compiles for GPUs leaves this to the allocator.
        raise _does_not_fit(topology, f"{memory.needed / 2**30:.2f}GiB")
    return memory


def _does_not_fit(topology: Topology, size: str) -> RunError:
    available = f"{topology.memory / 2**30:.2f}GiB"
    needs = f"it wants {size} of the {available} of a chip" if size else f"a chip has {available}"
    return RunError(
        f"the program does not fit on {topology.name}: {needs}; raise --gradient-accumulation or "
        "lower --num-envs"
    )


@contextlib.contextmanager
def _without_cache() -> Generator[None]:
    """Keeps JAX from looking for the program in its cache, from which only a device can take it."""
    option = "jax_enable_compilation_cache"
    before: bool = getattr(jax.config, option)
    jax.config.update(option, False)
    reset_cache()
    try:
        yield
    finally:
        jax.config.update(option, before)
        reset_cache()

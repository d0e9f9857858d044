"""Compiles HackMatrix's training for absent TPUs or GPUs; prints time, memory and collectives.

    pip install 'ppo-mask[tpu]'    # or 'ppo-mask[cuda]': the compiler, which runs on any CPU
    python examples/compile_for.py v6e-8 --num-envs 4096
    python examples/compile_for.py h100:4 --num-envs 8192 --network board

Takes the flags of ``hackmatrix train``; trains nothing and writes nothing. A TPU's compiler refuses
a program that does not fit in the TPU's memory; a GPU's compiler does not. Several devices should
exchange only gradients and a few numbers: all-reduces, none larger than the network. For your own
task, replace ``TASK`` and ``DEFAULTS``.
"""

import math
import os
import re
import sys
import time
from typing import Any

import equinox as eqx
import jax
from jax.experimental import topologies
from jaxtyping import Array, Key

import ppo_mask as pm
from hackmatrix.task import DEFAULTS, TASK
from ppo_mask.devices.sharding import mesh_of
from ppo_mask.errors import RunError
from ppo_mask.runner import make_parts, make_plan, make_trainer
from ppo_mask.training import lower_chunk

# gcloud's names for slices, and JAX's: the kind and arrangement of chips. The number in a name
# counts cores (two in a chip) up to v4 and for v5p, and chips for v5e (v5litepod) and v6e.
CUBES = {8: "2x2x1", 16: "2x2x2", 32: "2x2x4", 64: "2x4x4", 128: "4x4x4"}
CORES = {8: "2x2", 32: "4x4", 64: "4x8", 128: "8x8"}
CHIPS = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8"}
SLICES = {
    "v3": ("v3", CORES),
    "v4": ("v4", CUBES),
    "v5p": ("v5p", CUBES),
    "v5litepod": ("v5e", CHIPS),
    "v6e": ("v6e", CHIPS),
}
TPUS = {
    f"{name}-{number}": f"{kind}:{shape}"
    for name, (kind, shapes) in SLICES.items()
    for number, shape in shapes.items()
}
# XLA needs these facts about a GPU, here from NVIDIA's data sheets: compute capability (major,
# minor); multiprocessors; float32 units, threads and KiB of shared memory in each; KiB of shared
# memory for a block; MiB of cache; GHz; GB/s and GiB of memory.
GPUS = {
    "h100": ("9", "0", 132, 128, 2048, 228, 227, 50, 1.98, 3352, 79),
    "a100": ("8", "0", 108, 64, 2048, 164, 163, 40, 1.41, 1555, 39),
    "l4": ("8", "9", 58, 128, 1536, 100, 99, 48, 2.04, 300, 22),
    "t4": ("7", "5", 40, 64, 1024, 64, 64, 4, 1.59, 320, 14),
}
# What libtpu reads: without these it looks for a TPU VM and waits.
LIBTPU = {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v4-8", "TPU_WORKER_ID": "0"}
LIBTPU["TPU_WORKER_HOSTNAMES"] = "localhost"


def devices_of(name: str) -> list[Any]:
    """Makes devices that programs can be compiled for, but not run on.

    Args:
        name: one of :data:`TPUS`; or one of :data:`GPUS`, with ``:4`` for four in one machine.

    Raises:
        RunError: the name is unknown, or the compiler is not installed.
    """
    gpu = re.fullmatch(rf"({'|'.join(GPUS)})(?::([1-8]))?", name)
    if name not in TPUS and gpu is None:
        known = ", ".join([*TPUS, *GPUS, "and h100:4, which is four of them"])
        raise RunError(f"unknown topology {name!r}; known are {known}")
    jax.config.update("jax_platforms", "cpu")  # Else JAX starts an accelerator that is here.
    jax.config.update("jax_enable_compilation_cache", False)  # Only a device could load from it.
    try:
        if gpu is not None:
            of_gpu = {"topology": f"1x1x{gpu[2] or 1}", "target_config": describe_gpu(gpu[1])}
            return list(topologies.get_topology_desc(name, "cuda", **of_gpu).devices)
        os.environ.update(LIBTPU)
        kind, _, shape = TPUS[name].partition(":")
        # One device a chip.
        options: Any = {"chip_config_name": "megacore"} if kind == "v4" else {}
        if shape in ("1x1", "2x4"):  # One host has one chip, or eight instead of four.
            options = {"chips_per_host_bounds": [*map(int, shape.split("x")), 1]}
        return list(topologies.get_topology_desc(TPUS[name], "tpu", **options).devices)
    except RuntimeError as error:
        extra = "ppo-mask[tpu]" if gpu is None else "ppo-mask[cuda]"
        raise RunError(f"compiling for {name} needs the extra {extra}: {error}") from error


def describe_gpu(name: str) -> str:
    """A ``GpuTargetConfigProto`` of XLA, as text."""
    major, minor, cores, units, threads, shared, block, cache, ghz, bandwidth, memory = GPUS[name]
    return f"""gpu_device_info {{ cuda_compute_capability {{ major: {major} minor: {minor} }}
        core_count: {cores} fpus_per_core: {units} clock_rate_ghz: {ghz}
        threads_per_core_limit: {threads} threads_per_block_limit: 1024 threads_per_warp: 32
        registers_per_core_limit: 65536 registers_per_block_limit: 65536
        shared_memory_per_core: {shared * 2**10} shared_memory_per_block: 49152
        shared_memory_per_block_optin: {block * 2**10} l2_cache_size: {cache * 2**20}
        device_memory_size: {memory * 2**30} memory_bandwidth: {bandwidth * 10**9}
        block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535 }}
        platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
        device_description_str: "{name}" """


def collectives(program: str) -> dict[str, list[int]]:
    """Finds the collectives in a program's text: the bytes of each, by kind."""
    kinds = "all-gather|all-reduce|all-to-all|collective-[a-z]+|ragged-all-to-all|reduce-scatter"
    found: dict[str, list[int]] = {}
    for shapes, kind in re.findall(rf" = (.*?) ({kinds})(?:-start)?\(", program):
        arrays = re.findall(r"\b[a-z]+(\d*)\w*\[([\d,]*)\]", shapes)
        bits = [int(n or 8) * math.prod(map(int, filter(None, s.split(",")))) for n, s in arrays]
        found.setdefault(kind, []).append(sum(bits) // 8)
    return found


def main(arguments: list[str]) -> None:
    """Compiles, and prints the time, the memory and the collectives."""
    name, *flags = arguments or [""]
    devices = devices_of(name)
    flags.append("--no-distributed")
    config = make_plan(TASK.offer(DEFAULTS), flags, "", presets=TASK.presets).config
    mesh = mesh_of(devices[: config.run.num_devices])
    trainer = make_trainer(TASK, config, *make_parts(TASK, config), mesh)
    assert isinstance(trainer, pm.Trainer)

    def init(key: Key[Array, ""]) -> pm.training.TrainState:
        return trainer.init(TASK.new_model(trainer.env, config.network, key), key)

    started = time.perf_counter()
    lowered = lower_chunk(trainer, eqx.filter_eval_shape(init, jax.random.key(0)))
    traced = time.perf_counter()
    # XLA times kernels to choose among them, but there is no device to do it on.
    options: Any = {} if name in TPUS else {"xla_gpu_autotune_level": 0}
    compiled: Any = lowered.compile(compiler_options=options)
    done = time.perf_counter()
    print(f"{name}: {len(mesh.devices)} x {devices[0].device_kind}")
    print(f"traced in {traced - started:.1f} s, compiled in {done - traced:.1f} s")
    used = compiled.memory_analysis()
    parts = {
        "state": used.argument_size_in_bytes,
        "not updated in place": used.output_size_in_bytes - used.alias_size_in_bytes,
        "temporaries": used.temp_size_in_bytes,
        "code": used.generated_code_size_in_bytes,
    }
    sizes = ", ".join(f"{part} {size / 2**20:.2f}" for part, size in parts.items())
    print(f"memory of each device: {sum(parts.values()) / 2**20:.2f} MiB ({sizes})")
    for kind, sent in sorted(collectives(compiled.as_text()).items()):
        print(f"{kind}: {len(sent)} in the program, the largest of {max(sent):,} bytes")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (RunError, ValueError, jax.errors.JaxRuntimeError) as problem:
        raise SystemExit("error: " + str(problem).partition("\n")[0]) from None

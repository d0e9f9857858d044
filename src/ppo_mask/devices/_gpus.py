"""NVIDIA's GPUs by name. JAX's CUDA plugin, from PyPI, compiles for them on any CPU.

XLA wants to know a GPU as its driver describes it; the numbers are NVIDIA's, from data sheets and
``cudaGetDeviceProperties``.
"""

import re
from typing import NamedTuple

from ppo_mask.devices._topology import Topology


class _Model(NamedTuple):
    """One of NVIDIA's GPUs.

    Attributes:
        kind: the driver's name for it.
        capability: major and minor number of what it can do.
        cores: streaming multiprocessors.
        units: for float32, of a core.
        threads: at most, of a core.
        shared: bytes of shared memory, of a core.
        reserved: of them, bytes that no block can have.
        cache: bytes.
        gigahertz: of a core.
        bandwidth: of the memory, bytes a second.
        memory: bytes that programs can use.
    """

    kind: str
    capability: tuple[int, int]
    cores: int
    units: int
    threads: int
    shared: int
    reserved: int
    cache: int
    gigahertz: float
    bandwidth: int
    memory: int


_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_T4 = _Model(
    *("Tesla T4", (7, 5), 40, 64, 1024, 64 * _KIB, 0),
    *(4 * _MIB, 1.59, 320_064_000_000, int(14.75 * _GIB)),
)
_L4 = _Model(
    *("NVIDIA L4", (8, 9), 58, 128, 1536, 100 * _KIB, _KIB),
    *(48 * _MIB, 2.04, 300_096_000_000, int(22.03 * _GIB)),
)
_A100 = _Model(
    *("NVIDIA A100-SXM4-40GB", (8, 0), 108, 64, 2048, 164 * _KIB, _KIB),
    *(40 * _MIB, 1.41, 1_555_200_000_000, 42_331_013_120),
)
_H100 = _Model(
    *("NVIDIA H100 80GB HBM3", (9, 0), 132, 128, 2048, 228 * _KIB, _KIB),
    *(50 * _MIB, 1.98, 3_352_320_000_000, 84_978_434_048),
)
_MODELS = {
    "t4": _T4,
    "l4": _L4,
    "a100": _A100,
    "a100-80": _A100._replace(
        kind="NVIDIA A100-SXM4-80GB", bandwidth=2_039_040_000_000, memory=85_100_068_864
    ),
    "h100": _H100,
    "h200": _H100._replace(kind="NVIDIA H200", bandwidth=4_800_000_000_000, memory=151_397_597_184),
}
_OF_A_HOST = 8
GPUS = tuple(_MODELS)
"""Of one GPU; ``h100:4`` names several."""


def find_gpu(name: str) -> Topology | None:
    """Finds the GPUs that a name means; None if there are none."""
    found = re.fullmatch(r"([\w-]+?)(?::([1-9]\d*))?", name.lower())
    model = _MODELS.get(found[1]) if found else None
    if found is None or model is None:
        return None
    count = int(found[2] or 1)
    hosts, left = divmod(count, _OF_A_HOST)
    if left and hosts:
        return None
    return Topology(
        name=name,
        platform="cuda",
        arrangement=found[1],
        num_chips=count,
        num_hosts=max(hosts, 1),
        memory=model.memory,
        options={
            "topology": f"1x{max(hosts, 1)}x{_OF_A_HOST if hosts else left}",
            "target_config": _described(model),
        },
        # To try out kernels it would need the device.
        compiler_options={"xla_gpu_autotune_level": 0},
    )


def _described(model: _Model) -> str:
    """A ``GpuTargetConfigProto`` of XLA, as text."""
    major, minor = model.capability
    return f"""
gpu_device_info {{
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  core_count: {model.cores}
  fpus_per_core: {model.units}
  clock_rate_ghz: {model.gigahertz}
  threads_per_core_limit: {model.threads}
  threads_per_block_limit: 1024
  threads_per_warp: 32
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  shared_memory_per_core: {model.shared}
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {model.shared - model.reserved}
  l2_cache_size: {model.cache}
  device_memory_size: {model.memory}
  memory_bandwidth: {model.bandwidth}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{model.kind}"
"""

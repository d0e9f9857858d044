"""TPUs by name. libtpu, Google's compiler and driver, comes from PyPI and compiles on any CPU."""

import re
from math import prod
from typing import Any, NamedTuple

from ppo_mask.devices._topology import Topology


class _Family(NamedTuple):
    """TPUs of one generation.

    Attributes:
        counts: what the number in a name counts of each chip: 2 cores, or the chip itself.
        memory: of a chip, GiB that programs can use, as libtpu says where it is exceeded.
        sizes: chips to their arrangement, of the slices that Google rents out.
        options: that libtpu needs beside the arrangement.
    """

    counts: int
    memory: float
    sizes: dict[int, tuple[int, ...]]
    options: dict[str, Any]


_FLAT = {1: (1, 1), 4: (2, 2), 8: (2, 4), 16: (4, 4), 32: (4, 8), 64: (8, 8), 256: (16, 16)}
_CUBES = {4: (2, 2, 1), 8: (2, 2, 2), 16: (2, 2, 4), 32: (2, 4, 4), 64: (4, 4, 4)}
_FAMILIES = {
    # Without the option each of a v4's cores is a device, which is not how JAX sees a real one.
    "v4": _Family(2, 30.75, _CUBES, {"chip_config_name": "megacore"}),
    "v5e": _Family(1, 15.75, _FLAT, {}),
    "v5p": _Family(2, 95.74, _CUBES, {}),
    "v6e": _Family(1, 31.25, _FLAT, {}),
}
TPUS = {family: [f"{family}-{n * of.counts}" for n in of.sizes] for family, of in _FAMILIES.items()}
"""Of each generation the slices that can be rented."""

_CHIPS_OF_A_HOST = 4
WANTED_BY_LIBTPU = {
    # Else it looks for a TPU VM's metadata, and waits.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v4-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_LOG_DIR": "disabled",
    # Else one process at a time could compile: as if it held a device.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
"""The environment that it must find to compile for devices that are not here."""


def find_tpu(name: str) -> Topology | None:
    """Finds the TPUs that a name means; None if there are none."""
    family, sign, size = re.fullmatch(r"(\w*)([-:]?)(.*)", name.lower(), re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess]
    family = {"v5litepod": "v5e", "v5lite": "v5e"}.get(family, family)
    if (known := _FAMILIES.get(family)) is None:
        return None
    if sign == ":" and re.fullmatch(r"[1-9]\d*(x[1-9]\d*)+", size):
        shape = tuple(map(int, size.split("x")))
        if len(shape) == len(next(iter(known.sizes.values()))):
            return _topology(name, family, shape)
    chips, left = divmod(int(size) if size.isdecimal() else 0, known.counts)
    if sign == "-" and not left and chips in known.sizes:
        return _topology(name, family, known.sizes[chips])
    return None


def _topology(name: str, family: str, shape: tuple[int, ...]) -> Topology:
    known, num_chips = _FAMILIES[family], prod(shape)
    # Where chips are in a plane, up to eight of them are on one machine.
    is_one_host = shape in ((1, 1), (2, 2), (2, 4), (2, 2, 1))
    of_a_host = {"chips_per_host_bounds": [*shape, 1]} if len(shape) == 2 and is_one_host else {}
    return Topology(
        name=name,
        platform="tpu",
        arrangement=f"{family}:{'x'.join(map(str, shape))}",
        num_chips=num_chips,
        num_hosts=1 if is_one_host else num_chips // _CHIPS_OF_A_HOST,
        memory=int(known.memory * 2**30),
        options={**known.options, **of_a_host},
    )

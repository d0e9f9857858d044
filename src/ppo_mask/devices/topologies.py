"""TPUs by name, as devices that are not here: programs can be compiled for them all the same.

libtpu, Google's compiler and driver, comes from PyPI and compiles on any machine with a CPU.
"""

import contextlib
import difflib
import os
import re
from collections.abc import Generator
from importlib.util import find_spec
from math import prod
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies

from ppo_mask.errors import RunError


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
_NAMES = {
    family: [f"{family}-{n * of.counts}" for n in of.sizes] for family, of in _FAMILIES.items()
}
NAMES = tuple(name for names in _NAMES.values() for name in names)
"""Of the slices that can be rented; ``v4:2x2x4`` names any other arrangement of chips."""

_GPU = re.compile(r"(nvidia|cuda|gpu|rtx|gtx|[abhl]\d+s?|t4|p100|v100)\b.*")
_CHIPS_OF_A_HOST = 4
_WANTED_BY_LIBTPU = {
    # Else it looks for a TPU VM's metadata, and waits.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v4-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_LOG_DIR": "disabled",
    # Else one process at a time could compile: as if it held a device.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


class Topology(NamedTuple):
    """Chips, and how they are arranged.

    Attributes:
        name: as it was asked for.
        family: the generation: v4, v5e, v5p, v6e.
        shape: chips in each direction.
    """

    name: str
    family: str
    shape: tuple[int, ...]

    @property
    def num_chips(self) -> int:
        """Chips, each of which is a device of JAX."""
        return prod(self.shape)

    @property
    def num_hosts(self) -> int:
        """Machines that have the chips, each of which runs the program."""
        return 1 if self._is_one_host else self.num_chips // _CHIPS_OF_A_HOST

    @property
    def memory(self) -> int:
        """Bytes that a program can use of each chip."""
        return int(_FAMILIES[self.family].memory * 2**30)

    @property
    def _is_one_host(self) -> bool:
        # Where chips are in a plane, up to eight of them are on one machine.
        return self.shape in ((1, 1), (2, 2), (2, 4), (2, 2, 1))

    @property
    def options(self) -> dict[str, Any]:
        """What libtpu needs to know beside the arrangement."""
        options = _FAMILIES[self.family].options
        if len(self.shape) == 2 and self._is_one_host:
            options = {**options, "chips_per_host_bounds": [*self.shape, 1]}
        return options


def find(name: str) -> Topology:
    """Finds the chips that a name means.

    Args:
        name: one of :data:`NAMES`; or a generation and an arrangement of chips, such as
            ``v4:2x2x4``.

    Raises:
        RunError: there are none of that name.
    """
    family, sign, size = re.fullmatch(r"(\w*)([-:]?)(.*)", name.lower(), re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess]
    family = {"v5litepod": "v5e", "v5lite": "v5e"}.get(family, family)
    if known := _FAMILIES.get(family):
        if sign == ":" and re.fullmatch(r"[1-9]\d*(x[1-9]\d*)+", size):
            shape = tuple(map(int, size.split("x")))
            if len(shape) == len(next(iter(known.sizes.values()))):
                return Topology(name, family, shape)
        chips, left = divmod(int(size) if size.isdecimal() else 0, known.counts)
        if sign == "-" and not left and chips in known.sizes:
            return Topology(name, family, known.sizes[chips])
    if _GPU.fullmatch(name.lower()) and known is None:
        raise RunError(f"{name}: programs cannot be compiled for GPUs that are not here, only TPUs")
    close = difflib.get_close_matches(name.lower(), NAMES, n=1)
    hint = f": did you mean {close[0]}?" if close else ""
    there = ", ".join(f"{names[0]} to {names[-1]}" for names in _NAMES.values())
    raise RunError(
        f"there is no TPU {name}{hint} (there are {there}, and arrangements of chips such as "
        "v4:2x2x4 and v5e:4x8)"
    )


def devices_of(topology: Topology) -> list[Any]:
    """Makes devices that programs can be compiled for; nothing can be put or run on them.

    Raises:
        RunError: libtpu is not installed, or cannot arrange chips like that.
    """
    libtpu = find_spec("libtpu")
    if libtpu is None or libtpu.origin is None:  # A mere folder of that name has no origin.
        raise RunError(
            f"compiling for {topology.name} needs libtpu (not a TPU): pip install 'ppo-mask[tpu]'"
        )
    arrangement = f"{topology.family}:{'x'.join(map(str, topology.shape))}"
    try:
        with _environment(_WANTED_BY_LIBTPU):
            found = topologies.get_topology_desc(arrangement, "tpu", **topology.options)
    except (jax.errors.JaxRuntimeError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise RunError(f"libtpu cannot compile for {topology.name}: {reason}") from error
    return list(found.devices)


def without_accelerators() -> None:
    """Keeps JAX from starting an accelerator of this machine; call it before JAX is used.

    libtpu can be started once in a process, either for a TPU that is there or to compile for
    another.
    """
    jax.config.update("jax_platforms", "cpu")


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Generator[None]:
    """Sets variables for a while, and leaves no trace."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

"""Devices that are not here, as a compiler needs to know them."""

from typing import Any, NamedTuple


class Topology(NamedTuple):
    """Devices of one kind, and how they are arranged.

    Attributes:
        name: as it was asked for.
        platform: what compiles for them, as JAX names it: "tpu" or "cuda".
        arrangement: as that wants it.
        num_chips: each of them is a device of JAX.
        num_hosts: machines that have the devices, each of which runs the program.
        memory: bytes that a program can use of each device.
        options: what else the compiler needs to know of the devices.
        compiler_options: what it needs to be told because they are not here.
    """

    name: str
    platform: str
    arrangement: str
    num_chips: int
    num_hosts: int
    memory: int
    options: dict[str, Any]
    compiler_options: dict[str, Any] = {}  # noqa: RUF012 (nothing writes to it)

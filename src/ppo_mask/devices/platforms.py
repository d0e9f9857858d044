"""The platform that JAX runs on: a CPU, a GPU or a TPU."""

import os

import jax
from jax.sharding import Mesh

from ppo_mask.errors import RunError
from ppo_mask.jax_tools._programs import default_platform


def require_platform() -> None:
    """Starts JAX on the requested platform.

    Raises:
        RunError: this machine does not have the platform.
    """
    try:
        jax.devices()
    except (AssertionError, RuntimeError) as error:
        asked = os.environ.get("JAX_PLATFORMS") or "unset"
        reason = str(error).partition("\n")[0] or "JAX does not say why"
        raise RunError(
            f"JAX found no device with JAX_PLATFORMS {asked} ({reason}); JAX_PLATFORMS=cpu works "
            "everywhere, and a GPU or TPU needs the extra 'cuda' or 'tpu'"
        ) from error


def platform_of(mesh: Mesh | None) -> str:
    """Returns the platform that a program is compiled for.

    Args:
        mesh: the devices that the program runs on; None for JAX's default device.

    Returns:
        JAX's name of the platform: "cpu", "gpu" or "tpu".
    """
    if mesh is not None:
        return mesh.devices.flat[0].platform
    return default_platform()

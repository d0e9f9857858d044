"""The platform that JAX runs on: a CPU, a GPU, a TPU."""

import os

import jax

from ppo_mask.errors import RunError


def require_platform() -> None:
    """Starts JAX on the platform that it was asked for.

    Raises:
        RunError: this machine does not have it; one line, where JAX may say nothing at all.
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

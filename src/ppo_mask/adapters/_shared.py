"""Common parts of the adapters for environments of other libraries."""

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt8

from ppo_mask.envs import TimeStep
from ppo_mask.errors import RunError, first_line
from ppo_mask.jax_tools._trees import strong_types


def import_library(name: str) -> Any:
    """Imports a module of another library, which is an extra and may be missing."""
    extra = name.split(".")[0]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RunError(
            f"{extra} cannot be imported ({error}); pip install 'ppo-mask[{extra}]', or "
            "'ppo-mask[adapters]' for all libraries that there are adapters for"
        ) from error
    except Exception as error:  # For example, a library for an older NumPy, or a missing .so file.
        line = f"{type(error).__name__}: {first_line(error)}"
        raise RunError(f"{extra} is installed, and fails when it is imported: {line}") from error


def make_named(make: Callable[[str], Any], library: str, name: Any) -> Any:
    """Makes an environment of another library by its name; one that is made stays as it is."""
    if not isinstance(name, str):
        return name
    try:
        return make(name)
    except OSError as error:
        raise RunError(
            f"{library} downloads what {name} needs when it is first made, and that failed "
            f"({first_line(error)}); make it once where there is a network"
        ) from error
    except (ValueError, LookupError, NotImplementedError) as error:
        raise ValueError(
            f"{library} cannot make an environment {name}: {first_line(error)}"
        ) from error


def figure_pixels(figure: Any) -> UInt8[np.ndarray, "height width 3"]:
    """Draws a figure of pyplot, and closes it."""
    canvas = import_library("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    import_library("matplotlib.pyplot").close(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def select_arrays(info: dict[str, Any]) -> dict[str, Array]:
    """Keeps the entries of an info that are an array or a number."""
    leaves = {name: value for name, value in info.items() if jax.tree_util.all_leaves([value])}
    return strong_types(leaves)


def make_timestep(
    observation: Any, mask: Any, reward: Any, terminated: Any, truncated: Any, info: dict[str, Any]
) -> TimeStep:
    """Makes a time step from a library's values, with the types of the protocol.

    A step that both terminates and truncates counts as terminated. If a library allows no action
    where the episode has not terminated, as jumanji does for a trapped snake, every action is
    allowed, and the library decides what the action does.
    """
    mask, terminated = jnp.asarray(mask, bool), jnp.asarray(terminated, bool)
    truncated = jnp.asarray(truncated, bool) & ~terminated
    return TimeStep(
        observation=strong_types(observation),
        action_mask=mask | terminated | ~mask.any(),
        reward=jnp.asarray(reward, jnp.float32),
        terminated=terminated,
        truncated=truncated,
        info=select_arrays(info),
    )

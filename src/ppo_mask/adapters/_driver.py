"""Environments driven from Python, one call at a time, as libraries outside of JAX do it.

A call from Python is dear beside a step, so there is one a step, compiled once for all environments
of one kind, and little comes back from it.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped, UInt32

from ppo_mask.envs import AbstractEnv, VectorEnv
from ppo_mask.jax_tools import ArrayTree


class Driver:
    """Where an environment, or a vector of them, stands; and the two functions that move it.

    An episode's key comes from a NumPy generator: two words ``a`` and ``b`` of 32 bits make
    ``fold_in(key(a), b)``. ``reset`` and each ``step`` split the key in two; the first goes on, the
    second is theirs.
    """

    def __init__(
        self, env: AbstractEnv[Any] | VectorEnv[Any], output: Callable[[Any], Any]
    ) -> None:
        """Nothing is compiled or run yet.

        Args:
            env: what to drive.
            output: what to make of each timestep, inside the compiled function.
        """
        self._arrays, static = eqx.partition(env, _is_array)
        self._compiled = _compiled(static, output)
        self._place: _Place | None = None

    @property
    def state(self) -> ArrayTree:
        """The environment's.

        Raises:
            RuntimeError: it was never reset.
        """
        return self._current().state

    def reset(self, generator: np.random.Generator) -> Any:
        """Begins anew, by a key drawn from the generator; returns the output."""
        words = generator.integers(2**32, size=2, dtype=np.uint32)
        self._place, output = self._compiled.reset(self._arrays, words)
        return output

    def step(self, action: Any) -> Any:
        """Takes an action, or one in each environment; returns the output."""
        self._place, output = self._compiled.step(self._arrays, self._current(), action)
        return output

    def _current(self) -> "_Place":
        if self._place is None:
            raise RuntimeError("reset comes first")
        return self._place


class _Place(NamedTuple):
    """Where an environment stands; the key as plain words, for a key is made in Python."""

    key_data: UInt32[Array, " words"]
    state: Any


class _Compiled(NamedTuple):
    reset: Callable[..., tuple[_Place, Any]]
    step: Callable[..., tuple[_Place, Any]]


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)


@functools.lru_cache(maxsize=32)
def _compiled(static: Any, output: Callable[[Any], Any]) -> _Compiled:
    """The functions of all environments that differ in the values of arrays alone."""

    def reset(arrays: Any, words: Any) -> tuple[_Place, Any]:
        env: Any = eqx.combine(arrays, static)
        key = jax.random.fold_in(jax.random.key(words[0]), words[1])
        key, reset_key = jax.random.split(key)
        state, timestep = env.reset(reset_key)
        return _Place(jax.random.key_data(key), state), output(timestep)

    def step(arrays: Any, place: _Place, action: Any) -> tuple[_Place, Any]:
        env: Any = eqx.combine(arrays, static)
        key = jax.random.wrap_key_data(place.key_data)
        key, step_key = jax.random.split(key)
        state, timestep = env.step(step_key, place.state, action)
        return _Place(jax.random.key_data(key), state), output(timestep)

    return _Compiled(jax.jit(reset), jax.jit(step))


class _Slot(NamedTuple):
    """Where a leaf lies in the array of its dtype."""

    dtype: str
    start: int
    stop: int
    shape: tuple[int, ...]


class Packed(eqx.Module):
    """A tree of arrays as one array for each dtype: every array that leaves a device costs.

    Attributes:
        arrays: by dtype, the leaves one after another.
    """

    arrays: dict[str, Shaped[Array, " n"]]
    _slots: tuple[_Slot, ...] = eqx.field(static=True)
    _structure: Any = eqx.field(static=True)

    def __init__(self, tree: ArrayTree) -> None:
        """Packs a tree, best inside a compiled function."""
        leaves, self._structure = jax.tree.flatten(tree)
        parts: dict[str, list[Any]] = {}
        slots: list[_Slot] = []
        for leaf in leaves:
            row = parts.setdefault(leaf.dtype.name, [])
            start = sum(x.size for x in row)
            slots.append(_Slot(leaf.dtype.name, start, start + leaf.size, leaf.shape))
            row.append(leaf.reshape(-1))
        self._slots = tuple(slots)
        self.arrays = {name: jnp.concatenate(row) for name, row in parts.items()}

    def unpacked(self) -> Any:
        """The tree in NumPy's arrays, of memory of its own; scalars as Python's."""
        rows = {name: np.array(row) for name, row in jax.device_get(self.arrays).items()}
        # No function of its own for a leaf: its types would be checked for every one.
        leaves: list[Any] = []
        for dtype, start, stop, shape in self._slots:
            row = rows[dtype]
            leaves.append(row[start:stop].reshape(shape) if shape else row[start].item())
        return jax.tree.unflatten(self._structure, leaves)

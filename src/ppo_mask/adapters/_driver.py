"""Steps an environment from Python, for libraries outside of JAX.

A call into compiled code, or the conversion of one returned array, takes longer than a step of most
environments. So a step is one call, which returns one array per dtype.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped

from ppo_mask.envs import AbstractEnv, VectorEnv, VectorTimeStep
from ppo_mask.jax_tools import ArrayTree, compile_for


class Driver:
    """An environment, or a vector of environments, with its current state and random key.

    ``reset`` makes a key ``fold_in(key(a), b)`` from two 32-bit words ``a`` and ``b`` of a NumPy
    generator. ``reset`` and each ``step`` split the key, use the second half, and keep the first
    half for the next step. Environments that differ only in the values of their arrays share their
    compiled functions.

    Attributes:
        state: the environment's state after the last call; None before the first call.
    """

    def __init__(self, env: AbstractEnv[Any] | VectorEnv[Any]) -> None:
        """Compiles nothing yet; the first reset and the first step compile."""
        self._env = env
        self._reset, self._step = compile_for(env, _reset), compile_for(env, _step)
        self._part_mask = compile_for(env, _part_mask)
        self._key_data: Any = None
        self.state: Any = None

    def __getstate__(self) -> Any:
        """Leaves out compiled functions, which cannot be pickled; unpickling makes new ones."""
        return self._env, jax.device_get((self._key_data, self.state))

    def __setstate__(self, kept: Any) -> None:
        env, position = kept
        self.__init__(env)
        self._key_data, self.state = jax.tree.map(jnp.asarray, position)

    def reset(self, generator: np.random.Generator) -> tuple[Any, ArrayTree]:
        """Starts an episode, with a key from the generator; returns the same as ``step``."""
        words = generator.integers(2**32, size=2, dtype=np.uint32)
        return self._keep(*self._reset(words))

    def step(self, action: Any) -> tuple[Any, ArrayTree]:
        """Takes an action; for a vector, an action in each environment.

        Returns:
            A pair. First, a tuple of NumPy arrays and Python numbers: observation, mask, reward,
            terminated, truncated and info. Second, a vector's final observations, still on the
            device; an empty tuple for a single environment.
        """
        return self._keep(*self._step(self._key_data, self.state, action))

    def part_mask(self, prefix: Int[np.ndarray, " k"]) -> Any:
        """Returns the mask of a part of an action, given the choices before it."""
        return jax.device_get(self._part_mask(self.state, prefix))

    def _keep(self, key_data: Any, state: Any, timestep: "Packed", final: Any) -> Any:
        self._key_data, self.state = key_data, state
        return timestep.unpack(), final


def _reset(env: Any, words: Any) -> Any:
    key = jax.random.fold_in(jax.random.key(words[0]), words[1])
    key, reset_key = jax.random.split(key)
    return _pack(key, *env.reset(reset_key))


def _step(env: Any, key_data: Any, state: Any, action: Any) -> Any:
    key, step_key = jax.random.split(jax.random.wrap_key_data(key_data))
    return _pack(key, *env.step(step_key, state, action))


def _part_mask(env: Any, state: Any, prefix: Any) -> Any:
    return env.part_mask(state, prefix, len(prefix))


def _pack(key: Any, state: Any, timestep: Any) -> Any:
    final = timestep.final_observation if isinstance(timestep, VectorTimeStep) else ()
    given = (
        timestep.observation,
        timestep.action_mask,
        timestep.reward,
        timestep.terminated,
        timestep.truncated,
        timestep.info,
    )
    # Python keeps the key's data, since making a key array outside of compiled code is slow.
    return jax.random.key_data(key), state, Packed(given), final


class Packed(eqx.Module):
    """A tree of arrays, packed into one array per dtype to make fewer transfers from a device.

    Attributes:
        arrays: by the name of each dtype, one array that concatenates all leaves of this dtype.
    """

    arrays: dict[str, Shaped[Array, " n"]]
    _kinds: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)
    _structure: Any = eqx.field(static=True)

    def __init__(self, tree: ArrayTree) -> None:
        """Packs a tree; call this inside a compiled function."""
        leaves, self._structure = jax.tree.flatten(tree)
        self._kinds = tuple((leaf.dtype.name, leaf.shape) for leaf in leaves)
        parts: dict[str, list[Any]] = {}
        for leaf in leaves:
            parts.setdefault(leaf.dtype.name, []).append(leaf.reshape(-1))
        self.arrays = {name: jnp.concatenate(row) for name, row in parts.items()}

    def unpack(self) -> Any:
        """Returns the tree with writable NumPy arrays, and with Python scalars."""
        rows = {name: np.array(row) for name, row in jax.device_get(self.arrays).items()}
        # Inline, since a function's types would be checked for every leaf.
        leaves: list[Any] = []
        for dtype, shape in self._kinds:
            size = math.prod(shape)
            row, rows[dtype] = rows[dtype][:size], rows[dtype][size:]
            leaves.append(row.reshape(shape) if shape else row.item())
        return jax.tree.unflatten(self._structure, leaves)

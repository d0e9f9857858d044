"""Traces and lowers the trainer's program before there is a state, from the state's shapes."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp

from ppo_mask.devices.sharding import sharding
from ppo_mask.training._loop import no_garbage_collected
from ppo_mask.training._mistakes import explained
from ppo_mask.training._state import TrainState, is_array_or_shape, shardings_of
from ppo_mask.training._trainer import Trainer, run_chunk


@contextmanager
def traced_ahead(trainer: Trainer, like: TrainState) -> Generator[None]:
    """Traces :func:`run_chunk` in a thread while a ``with`` block makes or restores a state.

    XLA compiles without Python's lock, so the trace costs no time while the block compiles.
    :meth:`Trainer.train` finds the trace in JAX's cache.

    Args:
        trainer: the trainer.
        like: the shapes of the first state, from ``eqx.filter_eval_shape``.

    Raises:
        RunError: a part cannot be traced, as from :meth:`Trainer.train`, but earlier.
    """
    with no_garbage_collected(), ThreadPoolExecutor(1) as thread:
        fixed = trainer.with_values(), jnp.int32(0), jnp.float32(0)
        traced = thread.submit(eqx.filter_eval_shape, run_chunk, fixed, like)
        yield
        with explained(trainer.env):
            traced.result()


def lower_chunk(trainer: Trainer, state: TrainState) -> jax.stages.Lowered:
    """Traces and lowers :func:`run_chunk` as in training: same arguments, same donation.

    Computes nothing, and puts no array on the mesh's devices.

    Args:
        trainer: a trainer whose mesh has the program's devices; even one device needs a mesh.
        state: the state, or its shapes from ``eqx.filter_eval_shape``.

    Raises:
        ValueError: the trainer has no mesh; or the state does not fit the trainer.
    """
    mesh = trainer.mesh
    if mesh is None:
        raise ValueError("lower_chunk needs a trainer with a mesh, for the program's devices")
    everywhere = sharding(mesh, None)
    number = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((), jnp.float32)
    fixed, fixed_rest = eqx.partition((trainer.with_values(), *number), is_array_or_shape)
    arrays, rest = eqx.partition(state, is_array_or_shape)

    def chunk(arrays: Any, fixed: Any) -> Any:
        function = cast(Any, run_chunk).__wrapped__
        return eqx.filter(
            function(eqx.combine(fixed, fixed_rest), eqx.combine(arrays, rest)), eqx.is_array
        )

    arguments = jax.tree.map(_placed, arrays, shardings_of(arrays, mesh))
    fixed = jax.tree.map(lambda x: _placed(x, everywhere), fixed)
    return jax.jit(chunk, donate_argnums=0).lower(arguments, fixed)


def _placed(leaf: Any, sharding: jax.sharding.NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

"""Lowers the trainer's program for devices that this machine may lack."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp

from ppo_mask.devices.sharding import replicated_sharding
from ppo_mask.training._state import TrainState, is_array_or_shape, shardings_of
from ppo_mask.training._trainer import Trainer, run_chunk


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
    everywhere = replicated_sharding(mesh)
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

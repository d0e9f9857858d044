"""The trainer's program without its devices."""

import equinox as eqx
import jax
import pytest

import ppo_mask as pm
import programs
from ppo_mask.devices.sharding import mesh_of
from ppo_mask.training import lower_chunk


def test_a_program_is_lowered_for_a_mesh_and_updates_the_state_in_place() -> None:
    locks, mesh = programs.locks(), mesh_of(jax.devices()[:1])
    trainer = pm.Trainer(locks.env, locks.config, mesh=mesh)
    state = eqx.filter_eval_shape(
        lambda key: trainer.init(locks.make_model(key), key), jax.random.key(0)
    )
    with pytest.raises(ValueError, match="needs a trainer with a mesh"):
        lower_chunk(locks.trainer, state)
    text = lower_chunk(trainer, state).as_text()
    arrays = [x for x in jax.tree.leaves(state) if isinstance(x, jax.ShapeDtypeStruct)]
    assert text.count("tf.aliasing_output") + text.count("jax.buffer_donor") == len(arrays)

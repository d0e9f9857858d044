"""Both libraries work under any of JAX's number settings, and what comes out is the same."""

import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import any_settings
import ppo_mask as pm
import programs
from environments import Scripted
from hackmatrix.env import HackMatrix
from hackmatrix.task import TASK, GameSettings
from own_process import python
from ppo_mask.runner import NetworkSettings

SETTINGS = {
    "JAX_ENABLE_X64": "1",
    "JAX_NUMPY_RANK_PROMOTION": "raise",
    "JAX_NUMPY_DTYPE_PROMOTION": "strict",
}


def run(*names: str, **settings: str) -> Any:
    return json.loads(python(any_settings.__file__, *names, **settings).stdout)


@pytest.mark.slow
@pytest.mark.nightly  # Whole programs take minutes; what is traced of them is tested below.
@pytest.mark.parametrize("names", [["doors", "gru"], ["game"]])
def test_programs_do_the_same_under_all_settings(names):
    assert run(*names, **SETTINGS) == run(*names)


@pytest.fixture
def settings():
    """The same for what is traced in this process."""
    with (
        jax.enable_x64(True),
        jax.numpy_rank_promotion("raise"),
        jax.numpy_dtype_promotion("strict"),
    ):
        yield


def types(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(p): str(x.dtype) for p, x in leaves if hasattr(x, "dtype")}


def assert_traces(env, make, curriculum=None, **config):
    """A state has the types of 32 bits that it has without the setting, before and after."""
    config = pm.PPO(num_envs=8, num_steps=8, **config)
    trainer = pm.Trainer(env, config, curriculum=curriculum)
    key, one = jax.random.key(0), jnp.int32(1)
    start = eqx.filter_eval_shape(lambda: trainer.init(make(key), key))
    after, _ = eqx.filter_eval_shape(trainer.run_updates, start, one, one)
    assert types(start) == types(after)
    assert not any(dtype.endswith("64") for dtype in types(start).values())


TRAINING_GAMES = GameSettings(adaptive_starts=0.5, head_start=0.5, program_bonus=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "curriculum"),
    [("mlp", None), ("board", None), ("mlp", TASK.curriculum(TRAINING_GAMES))],
)
def test_game_is_traced_under_all_settings(settings, network, curriculum):
    env, sizes = HackMatrix(max_steps=9, compact=True), NetworkSettings(hidden_dim=8)
    assert_traces(env, lambda key: TASK.networks[network](env, sizes, key), curriculum)


@pytest.mark.parametrize("probe", [pm.envs.probes.MaskedLocks, pm.envs.probes.MaskedDoors])
def test_every_option_is_traced_under_all_settings(settings, probe):
    env = pm.TimeLimit(probe(), 3)
    options = {**programs.EVERYTHING, "precision": "bfloat16", "learning_rate": jnp.float32(1e-3)}
    assert_traces(env, lambda key: pm.network_for(env, "mlp", key=key), **options)


@pytest.mark.parametrize("normalize_observations", [False, True])
def test_a_memory_in_bfloat16_is_traced_under_all_settings(settings, normalize_observations):
    env = pm.envs.probes.RememberedCue(2)
    options = {"precision": "bfloat16", "normalize_observations": normalize_observations}
    assert_traces(env, lambda key: pm.network_for(env, "gru", key=key, hidden_dim=8), **options)


@pytest.mark.slow
def test_several_seeds_are_traced_under_all_settings(settings):
    # The game is batched once more, after it has been traced under settings of its own.
    env = HackMatrix(max_steps=9, compact=True)
    trainer = pm.Trainer(env, pm.PPO(num_envs=8, num_steps=8))
    keys, one = jax.random.split(jax.random.key(0), 2), jnp.int32(1)

    def train(key):
        network = TASK.networks["mlp"](env, NetworkSettings(hidden_dim=8), key)
        return eqx.filter(trainer.run_updates(trainer.init(network, key), one, one), eqx.is_array)

    assert not any(x.endswith("64") for x in types(jax.eval_shape(jax.vmap(train), keys)).values())


class Wide(Scripted):
    """Gives numbers of 64 bits where there are any."""

    def step(self, key, state, action):
        state, timestep = super().step(key, state, action)
        return state, self._wide(timestep)

    def reset(self, key):
        state, timestep = super().reset(key)
        return state, self._wide(timestep)

    def _wide(self, timestep):
        wide = timestep.reward.astype(float), timestep.observation.astype(float)
        return eqx.tree_at(lambda t: (t.reward, t.observation), timestep, wide)


def test_numbers_of_64_bits_become_float32_where_they_enter():
    with jax.enable_x64(True):
        env = Wide()
        assert env.reset(jax.random.key(0))[1].reward.dtype == jnp.float64
        _, timestep = pm.VectorEnv(env, 2).reset(jax.random.key(0))
        assert timestep.reward.dtype == jnp.float32
        trainer = pm.Trainer(env, pm.PPO(num_envs=4, num_steps=4))
        model = pm.network_for(env, "mlp", hidden_dim=8, key=jax.random.key(0))
        state = trainer.init(model, jax.random.key(1))
        after, _ = eqx.filter_eval_shape(trainer.run_updates, state, jnp.int32(1), jnp.int32(1))
    wide = {name for name, dtype in types(after).items() if dtype == "float64"}
    assert wide == {".rollout.observation"}

"""Every network that the task offers learns, is saved and loaded again, and plays."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix import HackMatrix
from hackmatrix.play.agents import NETWORKS, Agent
from hackmatrix.play.replay import record
from hackmatrix.task import TASK, GameSettings, play_env
from ppo_mask.checkpoints import architecture_of, load_policy, save_policy
from ppo_mask.checkpoints._architecture import build
from ppo_mask.checkpoints._policy import _KNOWN
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.errors import RunError
from ppo_mask.networks._model import is_recurrent
from ppo_mask.ppo import PPO
from ppo_mask.runner import NetworkSettings
from ppo_mask.training import Trainer
from recorded import row, views

SIZES = NetworkSettings(hidden_dim=8, num_layers=1)
KNOWN = (*NETWORKS, *_KNOWN)


class Album(AbstractEnv[Any]):
    """Shows recorded positions, whatever is done: the game to a network, and quickly compiled."""

    num_actions: int = 28

    def reset(self, key):
        number = jax.random.randint(key, (), 0, len(views().mask))
        seen, mask = row(jax.tree.map(jnp.asarray, (views().compact, views().mask)), number)
        off = jnp.bool_(False)
        mask = mask | ~mask.any()
        return number, TimeStep(seen, mask, jnp.float32(number % 2), off, off, {})

    def step(self, key, state, action):
        return self.reset(key)


def make(name: str, env: AbstractEnv[Any]):
    return TASK.networks[name](cast(HackMatrix, env), SIZES, jax.random.key(0))


@pytest.mark.slow
@pytest.mark.parametrize("name", TASK.networks)
def test_it_learns_and_plays(tmp_path, name):
    model = make(name, HackMatrix())
    trainer = Trainer(Album(), PPO(num_envs=4, num_steps=4, num_minibatches=2))
    state = trainer.train(trainer.init(model, jax.random.key(1)), 32)
    before, after = (eqx.filter(each.network, eqx.is_array) for each in (model, state.model))
    assert jax.tree.all(jax.tree.map(lambda a, b: (a != b).any(), before, after))
    save_policy(state.model, tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy", NETWORKS).model
    assert is_recurrent(loaded) == (name == "recurrent")
    assert (
        len(
            record(
                Agent(name, loaded, True, play_env(GameSettings(), loaded)), 0, max_steps=4
            ).frames
        )
        > 1
    )


@pytest.mark.parametrize("name", TASK.networks)
def test_hyperparameters_rebuild_it_and_it_starts_near_uniform(name):
    model = make(name, HackMatrix(compact=True))
    again = eqx.filter_eval_shape(build, architecture_of(model), {x.__name__: x for x in KNOWN})
    assert jax.tree.structure(again) == jax.tree.structure(model)
    if not is_recurrent(model):
        distribution, value = eqx.filter_jit(model)(row(views().compact, 0), jnp.arange(28) < 5)
        np.testing.assert_allclose(distribution.probs[:5], 0.2, atol=0.05)
        assert not distribution.probs[5:].any()
        assert value.shape == ()


@pytest.mark.parametrize("name", TASK.networks)
def test_it_sees_the_time_where_it_can_and_says_where_it_cannot(name):
    env = HackMatrix(time_aware=True)
    if name in ("mlp", "recurrent"):
        assert make(name, env).reader.time_aware
    else:
        with pytest.raises(RunError, match="time-aware is for the networks mlp and recurrent"):
            make(name, env)

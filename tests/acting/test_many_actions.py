"""Thousands of actions: masks kept as bits, exact frequencies, and learning."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.acting import collect, start_rollout

ROOMS = 4


class Doors(pm.AbstractEnv):
    """A row of rooms with three doors each, of very many; one leads on, two lead out."""

    num_actions: int

    def doors(self, room):
        return (room * 3 + jnp.arange(3)) * 37 % self.num_actions

    def reset(self, key):
        return jnp.int32(0), self.show(jnp.int32(0), jnp.float32(0), jnp.bool_(False))

    def step(self, key, state, action):
        leads_on = action == self.doors(state)[0]
        over = ~leads_on | (state == ROOMS - 1)
        return state + 1, self.show(state + 1, jnp.float32(leads_on), over)

    def show(self, room, reward, over):
        mask = jnp.zeros(self.num_actions, bool).at[self.doors(room)].set(True) | over
        return pm.TimeStep(jax.nn.one_hot(room, ROOMS), mask, reward, over, jnp.bool_(False), {})


@pytest.mark.parametrize(("actions", "kept"), [(255, 255), (301, 38)])
def test_masks_of_many_actions_are_kept_as_bits(actions, kept):
    env, keys = Doors(actions), jax.random.split(jax.random.key(0), 3)
    envs = pm.VectorEnv(env, 2)
    model = pm.network_for(env, "mlp", hidden_dim=4, key=keys[0])
    start = start_rollout(envs, model, keys[1])
    _, transitions = eqx.filter_jit(collect)(envs, model, start, keys[2], 5)
    decision = transitions.decision
    assert sum(x.nbytes for x in jax.tree.leaves(decision)) == 10 * (kept + 4 * (ROOMS + 3))
    assert decision.action_mask.shape == (5, 2, actions)
    for room, mask in zip(
        decision.observation.argmax(-1).ravel(),
        decision.action_mask.reshape(-1, actions),
        strict=True,
    ):
        assert set(np.flatnonzero(mask)) == set(np.asarray(env.doors(room)).tolist())


@pytest.mark.slow
def test_ten_thousand_actions_are_learned():
    env = Doors(10_000)
    ppo = pm.PPO(num_envs=16, num_steps=16, num_minibatches=4, learning_rate=1e-2)
    trainer, history = pm.Trainer(env, ppo), pm.History()
    model = pm.network_for(env, "mlp", hidden_dim=8, key=jax.random.key(0))
    state = trainer.init(model, jax.random.key(1))
    trainer.train(state, 6_144, callbacks=[history], log_interval=4)
    assert history["train/mean_episode_return"][-1] > 3.5  # Of 4; random play gets 0.5.


@pytest.mark.slow
def test_frequencies_of_a_hundred_thousand_actions_are_the_probabilities():
    size, random = 100_000, np.random.default_rng(0)
    logits, mask = random.normal(size=size).astype(np.float32), random.random(size) < 0.5
    weights = np.exp(logits.astype(np.float64)) * mask
    distribution = pm.MaskedCategorical(jnp.asarray(logits), jnp.asarray(mask))
    np.testing.assert_allclose(distribution.probs, weights / weights.sum(), rtol=1e-4)
    draw = jax.jit(lambda keys: jax.vmap(distribution.sample)(keys))
    keys = jax.random.split(jax.random.key(0), (200, 128))
    drawn = np.concatenate([draw(each) for each in keys])
    assert mask[drawn].all()
    cells = np.arange(size) // 1_000  # 100 cells, with about 256 samples each.
    expected = np.bincount(cells, weights / weights.sum()) * drawn.size
    seen = np.bincount(cells[drawn], minlength=len(expected))
    deviation = ((seen - expected) ** 2 / expected).sum() - len(expected)
    assert abs(deviation) < 5 * (2 * len(expected)) ** 0.5

    def loss(logits):
        each = pm.MaskedCategorical(logits, jnp.asarray(mask))
        return each.log_prob(drawn[0]) + each.entropy()

    gradient = np.asarray(jax.grad(loss)(distribution.probs * 1e4 - 5e3))
    assert np.isfinite(gradient).all()
    assert (gradient[~mask] == 0).all()

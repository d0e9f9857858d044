"""Environments in which the choice of a part decides what a later part may be."""

import dataclasses
import re
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.adapters.to_gymnasium import ToGymnasium
from ppo_mask.envs.probes import MaskedDoors, MaskedVaults
from ppo_mask.errors import ProtocolError

VAULTS = MaskedVaults(length=2, keys=(4, 6, 4))
CONFIG = pm.PPO(
    num_envs=32, num_steps=16, learning_rate=1e-2, gamma=0.8, ent_coef=0.01, max_grad_norm=5.0
)


class Inside(pm.AbstractEnv):
    """A wrapper that knows nothing of ``part_mask``."""

    env: Any
    num_actions: tuple[int, ...] = eqx.field(static=True, default=VAULTS.num_actions)

    def reset(self, key):
        return self.env.reset(key)

    def step(self, key, state, action):
        return self.env.step(key, state, action)


class InParts(Inside):
    """Without conditional masks: all parts under the timestep's mask alone."""

    def part_mask(self, state, prefix, k):
        return None


class Changed(Inside):
    """A wrapper that changes the masks of parts."""

    change: Any = eqx.field(static=True, default=None)

    def part_mask(self, state, prefix, k):
        return self.change(self.env.part_mask(state, prefix, k), prefix, k)


class Shown(Inside):
    """A wrapper that passes the call on, and shows the masks of later parts in its timesteps."""

    def part_mask(self, state, prefix, k):
        return self.env.part_mask(state, prefix, k)

    def reset(self, key):
        state, timestep = self.env.reset(key)
        mask = timestep.action_mask & (jnp.arange(14) != 9)
        return state, dataclasses.replace(timestep, action_mask=mask)


NESTED = pm.MultiTask([pm.TimeLimit(VAULTS, 3), pm.TimeLimit(MaskedVaults(1, (4, 6, 4)), 3)])


@pytest.mark.parametrize("env", [VAULTS, NESTED], ids=["alone", "wrapped"])
def test_lawful_environments_pass(env):
    pm.check_env(env, num_steps=6)


@pytest.mark.parametrize(
    ("env", "law"),
    [
        (Changed(VAULTS, change=lambda m, prefix, k: m[:-1] if k == 2 else m),
         "part_mask is bool[3] for part 2, not bool[4]"),
        (Changed(VAULTS, change=lambda m, prefix, k: None if k else m),
         "part_mask is None for part 1, not bool[6]"),
        (Changed(VAULTS, change=lambda m, prefix, k: m.astype(int)),
         "part_mask is int32[4] for part 0, not bool[4]"),
        (Changed(VAULTS, change=lambda m, prefix, k: m | (k == 0)),
         "part_mask must give for part 0 what action_mask has for it"),
        (Changed(VAULTS, change=lambda m, prefix, k: m & ((k < 2) | (prefix[-1:] < 3).all())),
         "part_mask is all False in part 2 of 4 x 6 x 4 actions (counted from 0), after the"),
        (Shown(VAULTS), "action_mask must be all True for the parts after part 0"),
        (Inside(pm.TimeLimit(VAULTS, 3)), "Inside holds an environment with the method part_mask"),
    ],
)  # fmt: skip
def test_each_broken_law_is_named(env, law):
    with pytest.raises(ProtocolError, match=re.escape(law)):
        pm.check_env(env, num_steps=6)


def test_a_wrapper_that_does_not_pass_the_call_on_is_refused():
    env = Inside(VAULTS)
    refused = partial(pytest.raises, ProtocolError, match="Inside holds .* the method part_mask")
    with refused():
        pm.Trainer(env, CONFIG)
    with refused():
        pm.evaluate(pm.networks.UniformActorCritic(env.num_actions), env, jax.random.key(0), 4)
    pm.Trainer(Inside(MaskedDoors(2, (4, 6, 4))), CONFIG)
    with pytest.raises(ValueError, match="needs a part_mask in all of its environments, or in no"):
        pm.MultiTask([VAULTS, MaskedDoors(2, (4, 6, 4))])


def trained(env, updates, **how):
    model = pm.network_for(env, "mlp", hidden_dim=32, key=jax.random.key(0), **how)
    trainer = pm.Trainer(env, CONFIG)
    start = trainer.init(model, jax.random.key(1))
    return trainer.train(start, updates * CONFIG.batch_size).model


def played(model, env, **how):
    return pm.evaluate(model, env, jax.random.key(2), 64, **how).mean_return


@pytest.mark.parametrize(
    ("size", "in_turn"), [pytest.param(0, True, marks=pytest.mark.slow), (4, True), (0, False)]
)
def test_only_masks_of_parts_in_turn_open_the_vaults(size, in_turn):
    env = VAULTS if in_turn else InParts(VAULTS)
    model = trained(env, 30, part_embedding=size)
    # At random, one key of three fits in the second lock, and one of two in the third.
    assert played(model, env) > 1.8 if in_turn else played(model, env) < 0.4


def test_what_was_acted_is_what_is_learned():
    """The first gradient step sees a ratio of 1; and every action is allowed on its path."""
    config = pm.PPO(num_envs=8, num_steps=8, num_minibatches=1, update_epochs=1)
    trainer = pm.Trainer(NESTED, config)
    model = pm.network_for(NESTED, "mlp", hidden_dim=8, part_embedding=3, key=jax.random.key(0))
    model = eqx.tree_at(lambda m: m.network.actor[-1].weight, model, replace_fn=lambda w: 100 * w)
    state = trainer.init(model, jax.random.key(1))
    total = jnp.float32(1)
    _, transitions, learned = eqx.filter_jit(lambda t, s: t.with_values().update(s, total))(
        trainer, state
    )
    assert abs(learned["approx_kl"]) < 1e-10
    assert learned["clip_frac"] == 0
    decision = transitions.decision
    starts = np.array(pm.envs.Actions.of(NESTED.num_actions).starts)
    chosen = np.take_along_axis(decision.action_mask, decision.action + starts, -1)
    assert chosen.all()
    assert (np.asarray(decision.action_mask).sum(-1) == 6).all()  # Two keys fit in each lock.


def test_training_names_the_part_that_allows_nothing_and_the_choices_before_it():
    shut = Changed(VAULTS, change=lambda m, prefix, k: m & ((k < 2) | (prefix[-1:] < 3).all()))
    line = (
        r"update 1: an action mask was all False in part 2 of 4 x 6 x 4 actions \(counted from 0\),"
        r" after the choice of \d, [3-5]; the environment must always allow an action in each part"
    )
    with pytest.raises(pm.TrainingError, match=line):
        trained(shut, 1)
    model = pm.networks.UniformActorCritic(shut.num_actions)
    with pytest.raises(ValueError, match="all False in a part, of 4 x 6 x 4 actions"):
        played(model, shut, greedy=False)


@pytest.mark.slow
def test_a_policy_acts_part_by_part_inside_and_outside_of_compiled_code():
    model = pm.network_for(VAULTS, "mlp", hidden_dim=8, part_embedding=2, key=jax.random.key(0))
    policy, key = pm.Policy(model), jax.random.key(3)
    state, timestep = jax.jit(VAULTS.reset)(jax.random.key(1))
    seen = timestep.observation, timestep.action_mask
    masks = jax.jit(VAULTS.part_mask, static_argnums=2)

    def part_mask(prefix, k):
        return masks(state, prefix, k)

    def in_lists(prefix, k):  # As people write it, without JAX.
        return np.asarray(part_mask(prefix, k)).tolist()

    sample = jax.jit(lambda: policy.sample(*seen, key, part_mask=part_mask))
    sampled = policy.sample(*seen, key, part_mask=in_lists)
    np.testing.assert_array_equal(sampled, sample())
    acted, _ = policy.act(*seen, (), part_mask=part_mask)
    for action in (sampled, acted, policy(*seen, part_mask=in_lists)):
        assert all(bool(part_mask(action[:k], k)[action[k]]) for k in range(3))
    with pytest.raises(ValueError, match="action mask is all False"):
        policy(*seen, part_mask=lambda prefix, k: [k == 0] * VAULTS.num_actions[k])


def test_a_gymnasium_environment_says_what_a_part_may_be():
    env = ToGymnasium(VAULTS)
    with pytest.raises(Exception, match="call reset before part_mask"):
        env.part_mask((), 0)
    model = pm.network_for(VAULTS, "mlp", hidden_dim=8, key=jax.random.key(0))
    policy, steps = pm.Policy(model), 0
    observation, _ = env.reset(seed=0)
    over = False
    while not over:
        assert env.action_masks()[4:].all()
        np.testing.assert_array_equal(env.part_mask((), 0), env.action_masks()[:4])
        action = policy(observation, env.action_masks(), part_mask=env.part_mask)
        observation, _, over, _, _ = env.step(np.asarray(action))
        steps += 1
    assert steps == 2  # A forbidden key would have ended the episode after the first.
    env = ToGymnasium(MaskedDoors())
    env.reset(seed=0)
    assert env.part_mask([1], 1) is None

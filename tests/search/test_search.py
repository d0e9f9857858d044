"""Search: what it makes of known values, of ends, of masks and of what is hidden."""

import dataclasses
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import ppo_mask as pm
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.envs import Next
from ppo_mask.errors import ProtocolError, RunError
from ppo_mask.games import Seat, random_opponent
from ppo_mask.search import Search
from reveal import Reveal


class Known(pm.AbstractActorCritic):
    """Given logits, and one value for all states."""

    logits: tuple[float, ...] = eqx.field(static=True, default=(0.0, 0.0))
    value: float = eqx.field(static=True, default=5.0)

    def __call__(self, observation, action_mask):
        return pm.MaskedCategorical(jnp.array(self.logits), action_mask), jnp.float32(self.value)


class OneStep(pm.AbstractEnv):
    """Ends at the first step; a step after that gives NaN."""

    terminated: bool = eqx.field(static=True)
    allowed: tuple[bool, ...] = eqx.field(static=True, default=(True, False))
    num_actions: int = eqx.field(static=True, default=2, init=False)

    def reset(self, key):
        return jnp.int32(0), self._show(jnp.int32(0))

    def step(self, key, state, action):
        return state + 1, self._show(state + 1)

    def _show(self, steps):
        return pm.TimeStep(
            observation=jnp.ones(1),
            action_mask=jnp.array(self.allowed) | ((steps > 0) & self.terminated),
            reward=jnp.where(steps > 1, jnp.nan, 2.0),
            terminated=(steps > 0) & self.terminated,
            truncated=(steps > 0) & (not self.terminated),
            info={},
        )


class Lures(pm.AbstractEnv):
    """Two steps. Action 1 is forbidden and would give 100; action 2 leads to a reward of 1."""

    num_actions: int = eqx.field(static=True, default=3)

    def reset(self, key):
        return jnp.zeros(2, jnp.int32), self._show(jnp.zeros(2, jnp.int32), 0.0)

    def step(self, key, state, action):
        steps, first = state
        reward = jnp.where(action == 1, 100.0, jnp.where((steps == 1) & (first == 2), 1.0, 0.0))
        state = jnp.stack([steps + 1, jnp.where(steps == 0, action, first)])
        return state, self._show(state, reward)

    def _show(self, state, reward):
        over = state[0] >= 2
        mask = jnp.array([True, False, True]) | over
        return pm.TimeStep(jnp.ones(1), mask, reward, over, False, {})


class Coin(pm.AbstractEnv):
    """The player guesses a coin that it cannot see."""

    imagined: bool = eqx.field(static=True, default=True)
    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key):
        return jax.random.bernoulli(key), self._show(jnp.float32(0), False)

    def step(self, key, state, action):
        return state, self._show(jnp.where(action == state, 1.0, -1.0), True)

    def imagine(self, key, state):
        if not self.imagined:
            return None
        seen = self._show(jnp.float32(0), False)
        return Next(jax.random.bernoulli(key), seen.observation, seen.action_mask)

    def _show(self, reward, over):
        return pm.TimeStep(jnp.ones(1), jnp.ones(2, bool), reward, over, False, {})


@eqx.filter_jit
def thinks(search, model, env, key, count=1):
    """What searches from ``count`` starts give: probabilities, and values."""
    state, timestep = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), count))

    def one(key, state, timestep):
        seen = timestep.observation, timestep.action_mask
        distribution, value, _ = search(model, env, key, state, *seen)
        return distribution.probs, value

    return jax.vmap(one)(jax.random.split(key, count), state, timestep)


@pytest.mark.parametrize(
    ("terminated", "scale", "after"),
    [(True, None, 2.0), (False, None, 2 + 0.5 * 5), (True, 4.0, 0.5), (True, 0.1, 10.0)],
)
def test_only_a_truncated_episode_goes_on_in_value(terminated, scale, after):
    search = Search(6, gamma=0.5, reward_scale=scale)
    probs, value = thinks(search, Known(), OneStep(terminated), jax.random.key(0))
    # The mean of the network's value and of what six simulations found, most of them past the end.
    np.testing.assert_allclose(value, [(5 + 6 * after) / 7], rtol=1e-6)
    np.testing.assert_array_equal(probs, [[1, 0]])


def test_the_better_action_is_found_and_forbidden_ones_are_never_tried():
    model = Known((2.0, 9.0, 0.0), value=0.0)
    probs, value = thinks(Search(16, gamma=1.0), model, Lures(), jax.random.key(0))
    assert np.argmax(probs) == 2
    assert probs[0, 1] == 0
    assert 0 < value[0] < 1


def test_a_search_knows_what_is_hidden_only_without_imagine():
    model = Known(value=0.0)
    knowing, _ = thinks(Search(8, gamma=1.0), model, Coin(imagined=False), jax.random.key(1), 64)
    coin, _ = jax.vmap(Coin().reset)(jax.random.split(jax.random.key(0), 64))
    np.testing.assert_array_equal(knowing.argmax(-1), coin)
    one, _ = thinks(Search(8, gamma=1.0), model, Coin(), jax.random.key(1), 64)
    assert 0.3 < (one.argmax(-1) == coin).mean() < 0.7
    assert one.max(-1).mean() > 0.8  # One world is certain of what it only guesses.
    many, _ = thinks(Search(8, gamma=1.0, num_worlds=64), model, Coin(), jax.random.key(1), 64)
    assert many.max(-1).mean() < 0.65


def test_the_key_alone_decides():
    search, model = Search(4, gamma=1.0), Known(value=0.0)
    first, again, other = (thinks(search, model, Coin(), jax.random.key(k), 32) for k in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert (first[0] != other[0]).any()


def test_an_evaluation_searches():
    env = Coin(imagined=False)
    results = [
        pm.evaluate(Known(value=0.0), env, jax.random.key(0), 32, search=search)
        for search in (None, Search(4, gamma=1.0))
    ]
    assert abs(results[0].mean_return) < 0.8
    assert results[1].mean_return == 1


def test_a_recurrent_network_remembers_in_the_tree():
    env = pm.envs.probes.MaskedLocks(length=2, keys=2)
    model = pm.network_for(env, "gru", key=jax.random.key(0))
    state, timestep = env.reset(jax.random.key(0))
    seen = timestep.observation, timestep.action_mask
    search = eqx.filter_jit(Search(4, gamma=1.0))
    *_, hidden = search(model, env, jax.random.key(0), state, *seen)
    wanted = model.advance(*seen, model.initial_hidden())[2]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), hidden, wanted)


def test_a_row_says_what_the_search_knows():
    search, game = Search(8, gamma=1.0, num_worlds=4), Reveal()
    against = Seat(game, random_opponent)
    assert search.describe(Coin()) == "search 8 × 4"
    assert search.describe(pm.TimeLimit(Coin(), 3)) == "search 8 × 4"
    assert Search(8, gamma=1.0).describe(Coin(imagined=False)) == "search 8, sees all"
    assert search.describe(against) == "search 8 × 4, sees all, knows its opponent"
    other = dataclasses.replace(search, env=Seat(game, pm.networks.UniformActorCritic(4)))
    assert other.describe(against) == "search 8 × 4, sees all"


@pytest.mark.parametrize("second", [Coin(), pm.TimeLimit(Coin(), 3)], ids=["as one", "switched"])
def test_of_several_tasks_a_search_imagines_the_one_played(second):
    env = pm.MultiTask([Coin(), second], weights=jnp.array([0.0, 1.0]))
    pm.check_env(env, num_steps=2)
    keys = jax.random.split(jax.random.key(0), 32)
    (task, before), _ = jax.vmap(env.reset)(keys)
    found = jax.jit(jax.vmap(env.imagine))(keys[::-1], (task, before)).state
    np.testing.assert_array_equal(found[0], 1)
    coins = [jax.tree.leaves(x)[-1 if second == Coin() else 1] for x in (before, found[1])]
    assert 8 < (coins[0] != coins[1]).sum() < 24
    assert Search(8, gamma=1.0).describe(env) == "search 8"
    mixed = pm.MultiTask([Coin(), Coin(imagined=False)])
    assert Search(8, gamma=1.0).describe(mixed) == "search 8, sees all"


def test_what_cannot_be_searched_is_refused_in_one_line(monkeypatch):
    search = Search(2, gamma=1.0)
    for env, line in (
        (pm.envs.probes.MaskedDoors(), "a search is for actions of one part"),
        (GymnasiumEnv(CartPoleEnv), "is for environments in JAX"),
    ):
        with pytest.raises(RunError, match=line):
            search(Known(), env, jax.random.key(0), (), jnp.ones(1), jnp.ones(2, bool))
    inside = dataclasses.replace(search, env=Lures())
    with pytest.raises(RunError, match=r"state is bool\[\], but int32\[2\] in the environment of"):
        inside(Known(), Coin(), jax.random.key(0), jnp.array(True), jnp.ones(1), jnp.ones(2, bool))
    forgetful = Forgetful(pm.TimeLimit(Coin(), 3))
    state, timestep = forgetful.reset(jax.random.key(0))
    seen = timestep.observation, timestep.action_mask
    with pytest.raises(ProtocolError, match=r"Forgetful holds .* have imagine\(key, state\) too"):
        search(Known(), forgetful, jax.random.key(0), state, *seen)
    with pytest.raises(ValueError, match="num_simulations must be at least 1, got 0"):
        Search(0, gamma=1.0)
    monkeypatch.setitem(sys.modules, "mctx", None)
    with pytest.raises(RunError, match=r"pip install 'ppo-mask\[mctx\]'"):
        Search(1, gamma=1.0)


class Forgetful(pm.AbstractEnv):
    """A wrapper that knows nothing of ``imagine``."""

    env: pm.AbstractEnv
    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key):
        return self.env.reset(key)

    def step(self, key, state, action):
        return self.env.step(key, state, action)


class Changed(Coin):
    """What it imagines looks different."""

    name: str = eqx.field(static=True, default="observation")

    def imagine(self, key, state):
        drawn = super().imagine(key, state)
        changed = {
            "observation": jnp.zeros(1),
            "action_mask": jnp.array([True, False]),
            "state": jnp.zeros(3),
        }
        return dataclasses.replace(drawn, **{self.name: changed[self.name]})


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("observation", "imagine must give a state with the same observation"),
        ("action_mask", "imagine must give a state with the same action_mask"),
        ("state", r"state is bool\[32\], but float32\[32, 3\] from imagine"),
    ],
)
def test_what_is_imagined_must_look_the_same(name, law):
    pm.check_env(Coin(), num_steps=2)
    with pytest.raises(ProtocolError, match=law):
        pm.check_env(Changed(name=name), num_steps=2)

"""Sets of candidates: what the reader joins, and what the network promises of its elements."""

import re
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.errors import RunError
from ppo_mask.networks import SetReader, describe_network, network_for
from ppo_mask.runner import NetworkSettings, Task

KEY = jax.random.key(0)
SHAPES = ((4, 3), (3, 2))


def network(num_actions: Any, shapes: Any = SHAPES, **sizes: Any) -> pm.SetActorCritic:
    sizes = {"hidden_dim": 8, "num_layers": 2, "key": KEY, **sizes}
    return loud(pm.SetActorCritic(shapes, 2, num_actions, **sizes))


def loud(network: pm.SetActorCritic) -> pm.SetActorCritic:
    """Makes the policy's head as large as the other layers, so that it says something."""
    return eqx.tree_at(
        lambda x: [layer.weight for layer in x.pointers],
        network,
        [layer.weight * 100 for layer in network.pointers],
    )


def inputs(shapes: Any = SHAPES, there: Any = (4, 3)) -> Any:
    keys = jax.random.split(jax.random.key(1), len(shapes))
    sets = [
        (jax.random.normal(key, shape), jnp.arange(shape[0]) < count)
        for key, shape, count in zip(keys, shapes, there, strict=True)
    ]
    return tuple(sets), jnp.array([0.5, -1.0])


@eqx.filter_jit
def said(network: Any, observation: Any, mask: Any) -> Any:
    distribution, value = network(observation, mask)
    return distribution.probs, value


MASKS: dict[str, tuple[Any, int]] = {
    "an element": (4, 4),
    "an element, or one of 2 others": (6, 6),
    "a pair": (12, 12),
    "a pair, or another": (13, 13),
    "an element of each": ((4, 3), 7),
    "an assignment": ((3,) * 4, 12),
    "an assignment, or one of 2 others": ((5,) * 4, 20),
}


@pytest.mark.parametrize("name", MASKS)
def test_what_is_not_there_changes_nothing_to_the_bit(name: str) -> None:
    num_actions, length = MASKS[name]
    made, mask = network(num_actions), jnp.ones(length, bool)
    sets, rest = inputs(there=(3, 2))
    changed = tuple((jnp.where(valid[:, None], x, jnp.nan), valid) for x, valid in sets)
    probs, value = said(made, (sets, rest), mask)
    assert probs.std() > 1e-3
    again = said(made, (changed, rest), mask)
    assert np.array_equal(probs, again[0])
    assert value == again[1]
    others = tuple((x + valid[:, None], valid) for x, valid in sets)
    assert not np.allclose(value, said(made, (others, rest), mask)[1])
    assert not np.allclose(value, said(made, (sets, -rest), mask)[1])


@pytest.mark.parametrize("name", MASKS)
def test_permuting_elements_permutes_the_probabilities(name: str) -> None:
    num_actions, length = MASKS[name]
    made, (sets, rest) = network(num_actions), inputs(there=(3, 3))
    mask = jax.random.bernoulli(jax.random.key(2), 0.7, (length,)).at[0].set(True).at[-1].set(True)
    orders = np.array([2, 3, 0, 1]), np.array([1, 2, 0])
    moved = tuple((x[order], valid[order]) for (x, valid), order in zip(sets, orders, strict=True))
    places = np.arange(length)
    if name.startswith("an assignment"):
        places = places.reshape(4, -1)[orders[0]]
        places[:, :3] = places[:, orders[1]]
        places = places.reshape(-1)
        mask = mask.at[::4].set(True)  # Each part has an allowed choice.
    elif isinstance(num_actions, tuple):
        places = np.concatenate([orders[0], 4 + orders[1]])
    elif num_actions >= 12:
        places[:12] = np.arange(12).reshape(4, 3)[orders[0]][:, orders[1]].reshape(-1)
    else:
        places[:4] = orders[0]
    probs, value = said(made, (sets, rest), mask)
    new_probs, new_value = said(made, (moved, rest), mask[places])
    np.testing.assert_allclose(new_probs, probs[places], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(new_value, value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("there", [(0, 3), (4, 0), (0, 0)])
def test_an_empty_set_makes_no_nan(there: Any) -> None:
    mask, seen = jnp.zeros(13, bool).at[12].set(True), inputs(there=there)

    def loss(network: Any) -> Any:
        distribution, value = network(seen, mask)
        return distribution.log_prob(12) + distribution.entropy() + value

    made = network(13)
    grads = eqx.filter_jit(eqx.filter_grad(loss))(made)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((said(made, seen, mask), grads)))


def test_the_policy_starts_nearly_uniform() -> None:
    for num_actions, length in ((6, 6), (13, 13), ((4, 3), 7), ((5,) * 4, 20)):
        made = pm.SetActorCritic(SHAPES, 2, num_actions, hidden_dim=8, key=KEY)
        probs, _ = said(made, inputs(), jnp.ones(length, bool))
        parts = jnp.split(probs, pm.envs.Actions.of(num_actions).starts[1:])
        assert all(np.allclose(part, 1 / len(part), rtol=0.05) for part in parts)


def test_one_set_attends_to_its_elements_only() -> None:
    made = network(4, SHAPES[:1])
    probs, _ = said(made, inputs(SHAPES[:1], (3,)), jnp.ones(4, bool))
    assert probs.shape == (4,)
    more, _ = said(made, inputs(SHAPES[:1], (4,)), jnp.ones(4, bool))
    assert not np.allclose(probs[0] / probs[1], more[0] / more[1], rtol=1e-6)


@pytest.mark.parametrize(
    ("num_actions", "line"),
    [
        (3, "3 actions do not fit sets of [4, 3] elements: an action is one of the first set or a"),
        ((4, 2), "4 x 2 actions do not fit sets of [4, 3]"),
        ((4, 3, 1), "4 x 3 x 1 actions do not fit"),
        ((2,) * 4, "2 x 2 x 2 x 2 actions do not fit"),
        ((3,) * 3, "3 x 3 x 3 actions do not fit"),
    ],
)
def test_other_actions_are_refused(num_actions: Any, line: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(line)}[^\n]*$"):
        network(num_actions)


def test_other_sets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"takes sets, and other numbers, of \(\(\(4, 3\), "):
        network(4)(inputs(SHAPES[:1], (4,)), jnp.ones(4, bool))


class Shop(pm.AbstractEnv[jax.Array]):
    """Rewards the cheapest of the items that are there."""

    num_actions: int = 5
    observation_sets = (("items", "sold", "is_there"),)

    def reset(self, key: Any) -> Any:
        return key, self._show(key, 0.0)

    def step(self, key: Any, state: Any, action: Any) -> Any:
        items, there = self._deal(state)
        best = jnp.where(there, items["price"], jnp.inf).argmin()
        return key, self._show(key, jnp.where(action == best, 1.0, 0.0), True)

    def _deal(self, key: Any) -> Any:
        price, there = jax.random.uniform(key, 5), jnp.arange(5) < jax.random.randint(key, (), 2, 6)
        return {"price": price, "size": jnp.ones((5, 2), jnp.int8)}, there

    def _show(self, key: Any, reward: Any, ended: Any = False) -> Any:
        items, there = self._deal(key)
        seen = {"items": items, "sold": ~there, "is_there": there, "till": jnp.float32(3)}
        seen["action_mask"] = there
        return pm.TimeStep(seen, there | ended, reward, ended, False, {})


def test_a_reader_joins_what_is_named_and_leaves_out_the_mask() -> None:
    observation = Shop().reset(KEY)[1].observation
    reader = SetReader(Shop.observation_sets)
    kept = reader.features(observation)
    assert sorted(kept) == ["is_there", "items", "sold", "till"]
    ((items, there),), rest = reader.join(kept)
    assert np.array_equal(rest, [3])
    assert np.array_equal(there, observation["is_there"])
    wanted = [observation["items"]["price"], [1] * 5, [1] * 5, ~there]
    assert np.array_equal(items, np.stack(wanted, axis=1).astype(np.float32))
    ((items, there),), rest = SetReader((("items", "action_mask", None),)).join(
        SetReader((("items", "action_mask", None),)).features(observation)
    )
    assert items.shape == (5, 4)
    assert there.all()
    assert rest.size == 5 + 5 + 1


class Bare(Shop):
    observation_sets = None


@pytest.mark.parametrize(
    ("sets", "line"),
    [
        (None, "which of action_mask, is_there, items, sold, till are sets? The environment's"),
        ((("item", "is_there"),), "the observation has no 'item'; it has"),
        ((("items", "till"),), "('items', 'till') are no set, whose arrays have one length, and a"),
        ((("till", None),), "('till', None) are no set"),
    ],
)
def test_a_wrong_declaration_is_one_line(sets: Any, line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)) as error:
        network_for(Bare(), "sets", sets=sets, key=KEY)
    assert "\n" not in str(error.value)
    if sets is None:
        with pytest.raises(RunError, match="which of"):
            Task(lambda _: Bare()).new_model(Bare(), NetworkSettings("sets"), KEY)


def test_it_learns_is_saved_and_described(tmp_path: Path) -> None:
    env = pm.TimeLimit(Shop(), 3)
    model = Task(lambda _: env).new_model(
        env, NetworkSettings("sets", 16, 1, activation="relu"), KEY
    )
    line = describe_network(model, env)
    assert "6 arrays" in line
    assert "-> SetActorCritic (sets of 5 x 4), " in line
    trainer = pm.Trainer(env, pm.PPO(num_envs=64, num_steps=8, learning_rate=3e-3, ent_coef=0.0))
    state = trainer.train(trainer.init(model, KEY), 64 * 8 * 40)
    assert float(pm.evaluate(state.model, env, KEY, 256).mean_return) > 0.9
    pm.save_policy(state.model, tmp_path / "policy")
    again = pm.load_policy(tmp_path / "policy").model
    assert again.network.activation == "relu"
    assert again.reader == state.model.reader
    timestep = env.reset(KEY)[1]
    one, other = (said(x, timestep.observation, timestep.action_mask) for x in (again, state.model))
    assert np.array_equal(one[0], other[0])


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu"])
def test_an_mlp_has_the_activation_asked_for(activation: Any) -> None:
    made = pm.MLPActorCritic(3, 2, hidden_dim=4, num_layers=1, activation=activation, key=KEY)
    x, layer = jnp.array([1.0, -2.0, 0.5]), made.critic[0]
    hidden = getattr(jax.nn, activation)(layer.weight @ x + layer.bias)
    value = made(x, jnp.ones(2, bool))[1]
    np.testing.assert_allclose(value, (made.critic[1].weight @ hidden)[0], rtol=1e-5)
    settings = NetworkSettings("mlp", 4, 1, activation=activation)
    assert Task(lambda _: Shop()).new_model(Shop(), settings, KEY).network.activation == activation


def test_another_activation_is_one_line() -> None:
    with pytest.raises(Exception, match="'activation' is 'sine'") as error:
        pm.MLPActorCritic(3, 2, activation="sine", key=KEY)  # pyright: ignore
    assert "\n" not in str(error.value)

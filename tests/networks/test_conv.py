"""Observations of any kind: images and boards through convolutions, all else as one vector."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.networks import describe_network, network_for

KEY = jax.random.key(0)


class Shows(pm.AbstractEnv[jax.Array]):
    """Shows what it was made with, and rewards the first action."""

    observation: Any
    num_actions: int = 3

    def reset(self, key):
        return jax.random.randint(key, (), 0, 2), self._show(0)

    def step(self, key, state, action):
        return state, self._show(jnp.where(action == 0, 1, 0))

    def _show(self, reward):
        return pm.TimeStep(self.observation, jnp.ones(3, bool), reward, False, False, {})


FLAT = {
    "floats": jnp.ones(4),
    "a number": jnp.int32(3),
    "bytes": jnp.ones((2, 5), jnp.uint8),
    "flags": jnp.ones((3, 3), bool),
    "a tuple": (jnp.ones(2), jnp.zeros((), jnp.int8)),
    "a dictionary": {"hand": jnp.ones(5, jnp.int32), "seen": jnp.ones((2, 2), bool)},
    "with nothing in an array": {"none": jnp.zeros((0, 4)), "some": jnp.ones(3)},
}
GRIDS = {
    "a board": jnp.ones((6, 7, 2), bool),
    "a large image": jnp.full((84, 84, 4), 255, jnp.uint8),
    "a board and a hand": {"board": jnp.ones((3, 3, 1)), "hand": jnp.ones(5, jnp.int32)},
    "two boards": (jnp.ones((5, 5, 2)), jnp.ones((4, 4, 1))),
}


def train(env, model, **config):
    trainer = pm.Trainer(env, pm.PPOConfig(num_envs=4, num_steps=8, num_minibatches=2, **config))
    return trainer.train(trainer.init(model, KEY), 64)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLAT)
def test_an_mlp_and_a_gru_take_any_observation(name: str) -> None:
    env = Shows(FLAT[name])
    train(env, pm.MLPActorCritic.for_env(env, hidden_dim=4, key=KEY))
    recurrent = pm.GRUActorCritic.for_env(env, hidden_dim=4, key=KEY)
    if name == "a dictionary":  # Both read them alike, and compiling takes seconds.
        train(env, recurrent)
    else:
        pm.evaluate(recurrent, env, KEY, 1, max_steps=1)
    assert type(network_for(env, key=KEY)) is pm.MLPActorCritic


def test_an_mlp_sees_all_numbers_in_their_order() -> None:
    observation = {"b": jnp.arange(3, dtype=jnp.uint8), "a": jnp.array([[True], [False]])}
    model = pm.MLPActorCritic.for_env(Shows(observation), hidden_dim=4, key=KEY)
    mask = jnp.ones(3, bool)
    np.testing.assert_array_equal(
        model(observation, mask)[0].probs, model(jnp.array([1.0, 0, 0, 1, 2]), mask)[0].probs
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_goes_through_convolutions(name: str) -> None:
    env = Shows(GRIDS[name])
    model = network_for(env, hidden_dim=8, key=KEY)
    assert isinstance(model, pm.ConvActorCritic)
    if "large" not in name:  # It is slow on a CPU, and one step shows as much.
        train(env, model)
    if "hand" in name:  # Of every type of array.
        train(env, model, precision="bfloat16", normalize_observations=True)
    distribution, value = model(GRIDS[name], jnp.array([True, True, False]))
    assert np.isfinite(value)
    np.testing.assert_allclose(distribution.probs, [0.5, 0.5, 0], atol=0.05)


def test_an_image_of_bytes_is_divided_by_255() -> None:
    model = pm.ConvActorCritic((4, 4, 1), 0, 3, hidden_dim=4, key=KEY)
    image, mask = jnp.full((4, 4, 1), 51, jnp.uint8), jnp.ones(3, bool)
    np.testing.assert_allclose(model(image, mask)[1], model(image / 255, mask)[1], rtol=1e-5)


def test_channels_may_come_first_in_an_image() -> None:
    make = functools.partial(pm.ConvActorCritic.for_env, hidden_dim=8, key=KEY)
    first = make(Shows(jnp.zeros((4, 20, 24), jnp.uint8)))
    last = make(Shows(jnp.zeros((20, 24, 4), jnp.uint8)))
    image, mask = jax.random.bits(KEY, (20, 24, 4), jnp.uint8), jnp.ones(3, bool)
    assert first.convolutions[0].weight.shape == last.convolutions[0].weight.shape
    np.testing.assert_array_equal(first(jnp.moveaxis(image, -1, 0), mask)[1], last(image, mask)[1])
    # Boards of few rows, and of many planes, are no images.
    for board in ((4, 4, 16), (3, 8, 8), (4, 3, 194)):
        model = make(Shows(jnp.zeros(board)))
        assert model.convolutions[0].weight.shape[1] == board[-1]


@pytest.mark.slow
def test_what_is_far_apart_in_a_grid_matters() -> None:
    model = pm.ConvActorCritic((20, 20, 1), 0, 3, hidden_dim=8, key=KEY)
    mask, empty = jnp.ones(3, bool), jnp.zeros((20, 20, 1))
    values = [model(empty.at[place].set(1.0), mask)[1] for place in ((0, 0), (0, 19), (19, 19))]
    assert len({float(value) for value in values}) == 3


def test_another_grid_or_none_is_refused() -> None:
    model, mask = pm.ConvActorCritic((4, 4, 1), 2, 3, key=KEY), jnp.ones(3, bool)
    for wrong in (jnp.ones((4, 4, 2)), jnp.ones((4, 4, 1)), (jnp.ones((4, 4, 1)), jnp.ones(3))):
        with pytest.raises(ValueError, match="a grid \\[4, 4, 1\\] and 2 other numbers"):
            model(wrong, mask)
    with pytest.raises(ValueError, match="no array of rows, columns and channels"):
        pm.ConvActorCritic.for_env(Shows(jnp.ones(4)), key=KEY)
    with pytest.raises(ValueError, match="at least 3 x 3"):
        pm.ConvActorCritic((2, 4, 1), 0, 3, key=KEY)


def test_an_observation_without_numbers_is_refused() -> None:
    for wrong, message in (((), "no numbers"), (jnp.zeros((0, 3)), "no numbers"), (KEY, "is key")):
        with pytest.raises(ValueError, match=message):
            network_for(Shows(wrong), key=KEY)


def test_a_saved_one_loads(tmp_path: Path) -> None:
    env = Shows(GRIDS["a board and a hand"])
    model = network_for(env, hidden_dim=8, key=KEY)
    pm.save_policy(model, tmp_path / "policy")
    again = pm.load_policy(tmp_path / "policy").model
    assert again.hyperparameters == model.hyperparameters


def test_a_network_in_words() -> None:
    env = Shows(GRIDS["a board and a hand"])
    text = describe_network(network_for(env, hidden_dim=8, key=KEY), env)
    assert "['board'] float32[3, 3, 1], ['hand'] int32[5] -> ConvActorCritic" in text
    env = Shows([jnp.ones(2)] * 5)
    text = describe_network(network_for(env, hidden_dim=8, key=KEY), env)
    assert text.startswith("5 arrays of 10 numbers -> MLPActorCritic, ")

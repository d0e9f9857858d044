"""Observations of any kind: images and boards through convolutions, all else as one vector."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.networks import describe_network, network_for

KEY = jax.random.key(0)
MASK = jnp.ones(3, bool)


class Shows(pm.AbstractEnv[jax.Array]):
    """Shows what it was made with, and rewards the first action."""

    observation: Any
    num_actions: int = 3

    def reset(self, key):
        return jax.random.randint(key, (), 0, 2), self._show(0)

    def step(self, key, state, action):
        return state, self._show(jnp.where(action == 0, 1, 0))

    def _show(self, reward):
        return pm.TimeStep(self.observation, MASK, reward, False, False, {})


FLAT = {
    "floats": np.ones(5, np.float32),
    "bytes": np.ones((5, 1), np.uint8),
    "a tuple": (np.ones(4, bool), np.int8(0)),
    "a dictionary": {"hand": np.ones(3, np.int32), "seen": np.ones((2, 1), bool)},
    "with nothing in an array": {"none": np.zeros((0, 4), np.float32), "some": np.ones(5, bool)},
}
"""Of five numbers each, so that their networks are of the same shapes."""

GRIDS = {
    "a board": np.ones((6, 7, 2), bool),
    "a large image": np.full((84, 84, 4), 255, np.uint8),
    "a board and a hand": {"board": np.ones((3, 3, 1), np.float32), "hand": np.ones(5, np.int32)},
    "two boards": (np.ones((5, 5, 2), np.float32), np.ones((4, 4, 1), np.float32)),
}
SMALL = {"hidden_dim": 8, "key": KEY}


@eqx.filter_jit
def said(model, observation, mask=MASK):
    """Probabilities and the value."""
    distribution, value = model(observation, mask)
    return distribution.probs, value


@pytest.mark.parametrize("name", FLAT)
def test_an_mlp_and_a_gru_take_any_observation(name: str) -> None:
    env = Shows(jax.tree.map(jnp.asarray, FLAT[name]))
    assert type(eqx.filter_eval_shape(lambda: network_for(env, **SMALL))) is pm.MLPActorCritic
    for kind in (pm.MLPActorCritic, pm.GRUActorCritic):
        model = eqx.filter_eval_shape(lambda kind=kind: kind.for_env(env, **SMALL))
        probs, value = eqx.filter_eval_shape(said, model, env.observation)
        assert (probs.shape, value.shape) == ((3,), ())


@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_goes_through_convolutions(name: str) -> None:
    env = Shows(jax.tree.map(jnp.asarray, GRIDS[name]))
    model = network_for(env, **SMALL)
    assert isinstance(model, pm.ConvActorCritic)
    probs, value = said(model, env.observation, jnp.array([True, True, False]))
    assert np.isfinite(value)
    np.testing.assert_allclose(probs, [0.5, 0.5, 0], atol=0.05)


def test_an_mlp_sees_all_numbers_in_their_order() -> None:
    observation = {"b": jnp.arange(3, dtype=jnp.uint8), "a": jnp.array([[True], [False]])}
    model = pm.MLPActorCritic.for_env(Shows(observation), **SMALL)
    np.testing.assert_array_equal(
        said(model, observation)[0], said(model, jnp.array([1.0, 0, 0, 1, 2]))[0]
    )


def conv(shape, others=0):
    return pm.ConvActorCritic(shape, others, 3, **SMALL)


def test_an_image_of_bytes_is_divided_by_255() -> None:
    image = np.full((4, 4, 1), 51, np.uint8)
    model = conv((4, 4, 1))
    one, other = (said(model, jnp.asarray(x))[1] for x in (image, np.float32(image / 255)))
    np.testing.assert_allclose(one, other, rtol=1e-5)


def test_channels_may_come_first_in_an_image() -> None:
    image = np.random.default_rng(0).integers(0, 256, (20, 24, 4)).astype(np.uint8)
    values = []
    for each in (image, np.moveaxis(image, -1, 0)):
        model = pm.ConvActorCritic.for_env(Shows(jnp.asarray(each)), **SMALL)
        values.append(said(model, jnp.asarray(each))[1])
    assert values[0] == values[1]
    # Boards of few rows, and of many planes, are no images.
    for board in ((4, 4, 16), (3, 8, 8), (4, 3, 194)):
        env = Shows(jnp.zeros(board))
        model = eqx.filter_eval_shape(lambda env=env: pm.ConvActorCritic.for_env(env, **SMALL))
        assert model.convolutions[0].weight.shape[1] == board[-1]


def test_what_is_far_apart_in_a_grid_matters() -> None:
    grids = np.zeros((3, 20, 20, 1), np.float32)
    for grid, place in zip(grids, ((0, 0), (0, 19), (19, 19)), strict=True):
        grid[place] = 1
    model = conv((20, 20, 1))
    assert len({float(said(model, jnp.asarray(grid))[1]) for grid in grids}) == 3


def test_another_grid_or_none_is_refused() -> None:
    model = conv((4, 4, 1), 2)
    for wrong in (jnp.ones((4, 4, 2)), jnp.ones((4, 4, 1)), (jnp.ones((4, 4, 1)), jnp.ones(3))):
        with pytest.raises(ValueError, match="a grid \\[4, 4, 1\\] and 2 other numbers"):
            model(wrong, MASK)
    with pytest.raises(ValueError, match="no array of rows, columns and channels"):
        pm.ConvActorCritic.for_env(Shows(jnp.ones(4)), key=KEY)
    with pytest.raises(ValueError, match="at least 3 x 3"):
        conv((2, 4, 1))


def test_an_observation_without_numbers_is_refused() -> None:
    for wrong, message in (((), "no numbers"), (jnp.zeros((0, 3)), "no numbers"), (KEY, "is key")):
        with pytest.raises(ValueError, match=message):
            network_for(Shows(wrong), key=KEY)


def test_a_saved_one_loads_and_is_described(tmp_path: Path) -> None:
    env = Shows(jax.tree.map(jnp.asarray, GRIDS["a board and a hand"]))
    model = network_for(env, **SMALL)
    pm.save_policy(model, tmp_path / "policy")
    again = pm.load_policy(tmp_path / "policy").model
    assert again.hyperparameters == model.hyperparameters
    text = describe_network(again, env)
    assert "['board'] float32[3, 3, 1], ['hand'] int32[5] -> ConvActorCritic" in text
    text = describe_network(again, Shows([jnp.ones(2)] * 5))
    assert text.startswith("5 arrays of 10 numbers -> ConvActorCritic, ")

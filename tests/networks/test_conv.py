"""Observations of any kind: images and boards through convolutions, all else as one vector."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.envs import ArrayInfo
from ppo_mask.errors import ProtocolError
from ppo_mask.networks import ArrayReader, describe_network, network_for
from ppo_mask.networks._conv import neighborhoods
from ppo_mask.networks.layers import affine

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


def knowing(observation, info):
    """An environment that knows something of what it shows, too."""

    class Informed(Shows):
        observation_info = info

    return Informed(observation)


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
    default = eqx.filter_eval_shape(lambda: network_for(env, **SMALL))
    assert type(default.network) is pm.MLPActorCritic
    for kind in ("mlp", "gru"):
        model = eqx.filter_eval_shape(lambda kind=kind: network_for(env, kind, **SMALL))
        probs, value = eqx.filter_eval_shape(said, model, env.observation)
        assert (probs.shape, value.shape) == ((3,), ())


@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_goes_through_convolutions(name: str) -> None:
    env = Shows(jax.tree.map(jnp.asarray, GRIDS[name]))
    model = network_for(env, **SMALL)
    assert isinstance(model.network, pm.ConvActorCritic)
    probs, value = said(model, env.observation, jnp.array([True, True, False]))
    assert np.isfinite(value)
    np.testing.assert_allclose(probs, [0.5, 0.5, 0], atol=0.05)


def test_an_mlp_sees_all_numbers_in_their_order() -> None:
    observation = {"b": jnp.arange(3, dtype=jnp.uint8), "a": jnp.array([[True], [False]])}
    model = pm.network_for(Shows(observation), "mlp", **SMALL)
    np.testing.assert_array_equal(
        said(model, observation)[0], said(model.network, jnp.array([1.0, 0, 0, 1, 2]))[0]
    )


def conv(shape, others=0):
    return pm.Model(ArrayReader((), shape), pm.ConvActorCritic(shape, others, 3, **SMALL))


def made_for(observation, info=None, **hyperparameters):
    """A network for an observation, and what the observation's environment knows of it."""
    env = Shows(observation) if info is None else knowing(observation, info)
    return pm.network_for(env, "conv", **SMALL, **hyperparameters)


@pytest.mark.parametrize(
    ("shape", "known", "asked", "axes"),
    [
        ((6, 7, 3), None, None, (6, 7, 3)),
        ((3, 6, 7), None, None, (6, 7, 3)),  # open_spiel's connect four.
        ((8, 8, 3), None, None, (8, 8, 3)),
        ((8, 8, 119), None, None, (8, 8, 119)),  # pgx's chess: no axis is the shortest.
        ((4, 84, 84), True, None, (84, 84, 4)),
        ((6, 7, 11), False, None, (6, 7, 11)),
        ((14, 21, 11), None, True, (21, 11, 14)),  # catanatron's.
        ((3, 6, 7), True, False, (3, 6, 7)),
    ],
)
def test_axes_are_rows_columns_and_channels(shape, known, asked, axes, capfd) -> None:
    """What was asked for is taken, then what the environment knows, then the shortest axis."""
    info = None if known is None else ArrayInfo(channels_first=known)
    model = eqx.filter_eval_shape(lambda: made_for(jnp.zeros(shape), info, channels_first=asked))
    rows, columns, channels = axes
    assert model.network.convolutions[0].in_features == 9 * channels
    order = "first" if shape[0] == channels else "last"
    described = describe_network(model, Shows(jnp.zeros(shape)))
    assert f"({rows} x {columns} cells, {channels} channels, which come {order})" in described
    assert ("taken for the channels" in capfd.readouterr().err) == (
        order == "first" and known is asked is None
    )


def test_both_orders_of_a_board_compute_the_same_and_are_saved(tmp_path: Path) -> None:
    board = np.random.default_rng(0).integers(0, 256, (6, 7, 3)).astype(np.uint8)
    values = []
    for i, each in enumerate((board, np.moveaxis(board, -1, 0))):
        pm.save_policy(made_for(each), tmp_path / f"{i}")
        values.append(said(pm.load_policy(tmp_path / f"{i}").model, jnp.asarray(each))[1])
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("dtype", "bounds", "scaled"),
    [
        ("uint8", None, (0, 255)),  # Of the grid alone.
        ("uint8", (0, 255), (0, 255)),
        ("uint8", (0, 11), (0, 11)),
        ("int32", (-15, 5), (-15, 5)),
        ("int32", (-10, 10), None),  # Small numbers are left as they are.
        ("int32", None, None),
        ("int32", (-(2**31), 2**31 - 1), None),
        ("int8", (-3, -3), None),
        ("float32", (0, 99), None),
        ("bool", (0, 1), None),
    ],
)
def test_integers_are_scaled_by_their_bounds(dtype, bounds, scaled) -> None:
    array = np.arange(16).reshape(4, 4, 1).astype(dtype)
    observation = jax.tree.map(jnp.asarray, {"board": array, "hand": array[0, 0]})
    env, shape = knowing(observation, ArrayInfo(bounds)), array.shape
    reader = ArrayReader.for_env(env, grid=True)
    hand = scaled if bounds else None  # Bytes of unknown bounds are scaled in a grid alone.
    assert (reader.bounds, reader.grid_shape) == ((scaled, hand) if scaled else (), shape)
    for result, name, between in zip(
        reader.join(observation), ("board", "hand"), (scaled, hand), strict=True
    ):
        low, high = between or (0, 1)
        wanted = (np.float32(observation[name]) - low) / (high - low)
        np.testing.assert_allclose(result, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "bounds", "kinds"),
    [
        ("int32", (-1, 8), (-1, 8)),
        ("uint8", (0, 17), (0, 17)),  # Neither is such a board scaled.
        ("int8", None, None),
        ("int32", (0, 99), None),
        ("float32", (0, 5), None),
        ("bool", (0, 1), None),
    ],
)
def test_cells_of_few_kinds_become_channels(dtype, bounds, kinds, tmp_path: Path) -> None:
    board = jnp.arange(3 * 4).reshape(3, 4).astype(dtype)
    env = knowing({"board": board, "hand": jnp.ones(2)}, ArrayInfo(bounds))
    assert type(network_for(env, **SMALL).network) is pm.MLPActorCritic
    if kinds is None:
        with pytest.raises(ValueError, match="no board of integers with known bounds"):
            network_for(env, "conv", **SMALL)
        return
    model = network_for(env, "conv", **SMALL)
    pm.save_policy(model, tmp_path / "policy")
    model = pm.load_policy(tmp_path / "policy").model
    grid, hand = model.reader.join(env.observation)
    wanted = np.asarray(board)[..., None] == np.arange(kinds[0], kinds[1] + 1)
    np.testing.assert_array_equal(grid, wanted)
    assert hand.tolist() == [1, 1]
    assert np.isfinite(said(model, env.observation)[1])
    assert f"(3 x 4 cells of {kinds[1] - kinds[0] + 1} kinds)" in describe_network(model, env)


def test_readers_keep_the_bounds() -> None:
    observation = {"board": jnp.zeros((4, 4, 1), jnp.int32), "hand": jnp.ones(2)}
    env = knowing(observation, ArrayInfo((0, 99)))
    for kind in ("conv", "mlp", "gru"):
        model = eqx.filter_eval_shape(lambda kind=kind: network_for(env, kind, **SMALL))
        assert model.reader.hyperparameters["bounds"] == ((0.0, 99.0), None)
        with pytest.raises(ValueError, match="takes 2 arrays, got 1"):
            eqx.filter_eval_shape(said, model, observation["board"])
    with pytest.raises(ProtocolError, match=r"observation_info is .* not like the observation"):
        made_for(np.zeros((4, 4, 1)), [ArrayInfo(), ArrayInfo()])


def test_a_large_image_is_pointed_out(capfd: pytest.CaptureFixture[str]) -> None:
    eqx.filter_eval_shape(lambda: made_for(jnp.zeros((210, 160, 3), jnp.uint8)))
    line = capfd.readouterr().err
    assert "about 5 times as long as 84 x 84, and each step of a rollout keeps 100,800" in line
    assert "ResizeObservation" in line
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("rows", "columns", "stride"), [(7, 5, 1), (12, 3, 1), (13, 8, 2), (14, 14, 2)]
)
def test_products_of_neighborhoods_are_convolutions(rows, columns, stride) -> None:
    grid = np.random.default_rng(0).normal(size=(rows, columns, 2)).astype(np.float32)
    layer = conv((rows, columns, 2)).network.convolutions[0]
    kernels = layer.weight.reshape(-1, 3, 3, 2)
    form, padding = ("NHWC", "OHWI", "NHWC"), [(1, 1), (1, 1)]
    expected = jax.lax.conv_general_dilated(
        grid[None], kernels, [stride] * 2, padding, dimension_numbers=form
    )
    result = affine(layer, neighborhoods(jnp.asarray(grid)))
    np.testing.assert_allclose(result, expected[0], atol=1e-5)


def test_what_is_far_apart_in_a_grid_matters() -> None:
    grids = np.zeros((3, 20, 20, 1), np.float32)
    # Away from the border, and a multiple of the stride apart: only the place tells them apart.
    for grid, place in zip(grids, ((4, 4), (4, 12), (12, 12)), strict=True):
        grid[place] = 1
    model = conv((20, 20, 1))
    assert len({float(said(model, jnp.asarray(grid))[1]) for grid in grids}) == 3


@pytest.mark.parametrize("num_actions", [42, 43, 85], ids=["each", "and to pass", "two of each"])
def test_actions_of_cells_are_chosen_by_what_is_around_the_cell(num_actions: int) -> None:
    network = pm.ConvActorCritic((6, 7, 2), 0, num_actions, **SMALL)
    silent = jnp.zeros_like(network.actor.weight)  # This head reads the whole board.
    network = eqx.tree_at(lambda x: x.actor.weight, network, silent)
    boards = np.zeros((2, 6, 7, 2), np.float32)
    boards[0, 2, 2] = boards[1, 3, 4] = 1
    logits = [
        np.log(said(network, (b, np.zeros(0)), np.ones(num_actions, bool))[0]) for b in boards
    ]
    one, other = (x[: num_actions // 42 * 42].reshape(6, 7, -1) for x in logits)
    np.testing.assert_allclose(one[1:4, 1:4], other[2:5, 3:6], rtol=1e-5)
    assert one[1:4, 1:4].std() > 1e-4  # A cell is not like another.


def test_actions_that_are_not_of_cells_have_one_head() -> None:
    for shape, num_actions in (((6, 7, 2), 7), ((6, 7, 2), (42, 42)), ((13, 4, 1), 14)):
        network = pm.ConvActorCritic(shape, 0, num_actions, **SMALL)
        assert network.cells is None


def test_another_grid_or_none_is_refused() -> None:
    model = conv((4, 4, 1), 2)
    for wrong in (jnp.ones((4, 4, 2)), jnp.ones((4, 4, 1)), (jnp.ones((4, 4, 1)), jnp.ones(3))):
        with pytest.raises(ValueError, match="the network takes a grid \\[4, 4, 1\\]"):
            model(wrong, MASK)
    with pytest.raises(ValueError, match="no array of rows, columns and channels"):
        network_for(Shows(jnp.ones(4)), "conv", key=KEY)
    with pytest.raises(ValueError, match="there is no network 'resnet'; there are mlp, gru, conv"):
        network_for(Shows(jnp.ones(4)), "resnet", key=KEY)
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
    for one, other in ((again.reader, model.reader), (again.network, model.network)):
        assert one.hyperparameters == other.hyperparameters
    text = describe_network(again, env)
    assert "['board'] float32[3, 3, 1], ['hand'] int32[5] -> ConvActorCritic (3 x 3" in text
    text = describe_network(again, Shows([jnp.ones(2)] * 5))
    assert text.startswith("5 arrays of 10 numbers -> ConvActorCritic (")

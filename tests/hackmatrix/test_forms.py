"""Observations in three forms: the flat one, the compact one, and one with the time."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import ENV
from hackmatrix import HackMatrix
from hackmatrix.networks import flat_mlp, player_centered_gru, player_centered_mlp
from hackmatrix.networks._board import view
from hackmatrix.networks.features import NUM_FEATURES, features, packed_with_time, unpack
from hackmatrix.networks.scripted import SCRIPTED
from hackmatrix.observation import (
    CELL_DIVISORS,
    OBSERVATION_SIZE,
    TimeAwareObservation,
    cell_channels,
    compact,
    compress,
    expand,
    with_time,
)
from hackmatrix.task import GameSettings, play_env
from ppo_mask.envs import VectorEnv
from recorded import row, states, views

MASK = jnp.arange(28) < 5


def test_each_form_gives_the_other_exactly():
    flat, compact, timed, _ = views()
    assert flat.shape[1:] == (OBSERVATION_SIZE,)
    assert sum(x[0].nbytes for x in jax.tree.leaves(compact)) * 19 < flat[0].nbytes
    np.testing.assert_array_equal(jax.jit(jax.vmap(expand))(compact), flat)
    again = jax.jit(jax.vmap(compress))(flat)
    jax.tree.map(np.testing.assert_array_equal, again, compact)
    jax.tree.map(np.testing.assert_array_equal, timed.seen, compact)
    assert not timed.steps.any()
    one, first = row(compact, 0), jnp.asarray(flat[0])
    assert expand(first) is first
    assert compress(one) is one


def test_few_positions_are_seen_as_many_are():
    """Shared cells, too, of which only the first enemy is seen."""
    among_few = jax.jit(jax.vmap(lambda x: compact(x.game, x.ground, among_few=True)))(states())
    jax.tree.map(np.testing.assert_array_equal, among_few, views().compact)


def test_channels_and_planes_are_those_of_the_flat_form():
    cells = views().flat[:, 33:].reshape(-1, 36, 42)
    some = np.array([41, 7, 36])

    @jax.jit
    @jax.vmap
    def read(seen):
        planes = seen.plane("turns").flags(), seen.plane("program", "data").flags()
        return cell_channels(seen.cells, some), planes

    got, (turns, held) = read(views().compact)
    np.testing.assert_array_equal(
        np.float32(got) / np.float32(CELL_DIVISORS[some]), cells[:, :, some]
    )
    np.testing.assert_array_equal(turns, cells[:, :, 36] != 0)
    np.testing.assert_array_equal(held, (cells[:, :, [7, *range(12, 35)]] != 0).any(-1))


def test_amounts_that_no_game_limits_are_held():
    seen = row(views().compact, 0)
    player = seen.player.copy()
    player[[6, 7]] = (1 << 16) - 1  # data siphons and attack
    seen = eqx.tree_at(lambda x: x.player, seen, player)
    back = jax.jit(lambda seen: compress(expand(seen)))(seen)
    np.testing.assert_array_equal(back.player, player)


def test_more_actions_than_it_holds_are_as_many_as_it_holds():
    game, seen = row(states(), 0).game, row(views().compact, 0)
    for steps, held in ((7, 7), (1 << 20, (1 << 16) - 1)):
        late = eqx.tree_at(lambda it: it.steps, game, jnp.int32(steps))
        assert with_time(seen, late).steps == held


def test_time_is_one_more_feature():
    steps = np.array([0, 7, 256, 264, 1016, 9000], np.uint16)
    seen = row(views().compact, slice(6))

    @jax.jit
    @jax.vmap
    def both(seen, steps):
        timed = unpack(packed_with_time(TimeAwareObservation(seen, steps)))
        return timed, unpack(features(seen).packed())

    timed, plain = both(seen, steps)
    assert timed.shape == (6, NUM_FEATURES + 1)
    np.testing.assert_array_equal(timed[:, :-1], plain)
    np.testing.assert_array_equal(timed[:, -1] * 32, [0, 0, 32, 33, 127, 127])


@pytest.mark.parametrize(
    ("make", "time_aware"),
    [(player_centered_mlp, True), (player_centered_gru, True), (player_centered_mlp, False)],
)
def test_only_a_time_aware_network_heeds_the_time(make, time_aware):
    model = make(8, time_aware=time_aware, key=jax.random.key(0))
    seen = row(views().timed, 0)
    late = eqx.tree_at(lambda it: it.steps, seen, np.uint16(900))
    value = eqx.filter_jit(lambda model, seen: model(seen, MASK)[1])
    assert (value(model, seen) != value(model, late)) == time_aware
    if time_aware:
        with pytest.raises(ValueError, match=r"HackMatrix\(time_aware=True\)"):
            value(model, row(views().compact, 0))


def test_networks_and_scripts_read_the_same_of_either_form():
    @jax.jit
    @jax.vmap
    def read(seen):
        fighter, _ = SCRIPTED["fighter"](seen, MASK)
        flat = flat_mlp(8, 1, key=jax.random.key(0)).reader
        kept = flat.features(seen)
        return features(seen).packed(), view(seen), fighter.probs, flat.unpack(kept)

    jax.tree.map(np.testing.assert_array_equal, *map(read, (views().flat, views().compact)))


@pytest.mark.parametrize("time_aware", [False, True])
def test_a_policy_is_played_in_the_game_that_it_needs(time_aware):
    model = player_centered_mlp(8, 1, time_aware=time_aware, key=jax.random.key(0))
    assert play_env(GameSettings(undo_depth=9), model) == HackMatrix(9, time_aware=time_aware)


@pytest.mark.slow
def test_games_show_their_positions_and_count_their_actions():
    """Three actions long, so that new games begin."""
    envs = VectorEnv(HackMatrix(max_steps=3, time_aware=True), 32)

    def step(carry, key):
        state, mask = carry
        action = jnp.argmax(jax.random.uniform(key, mask.shape) * mask, axis=1)
        state, timestep = envs.step(key, state, action)
        flat = jax.vmap(ENV.observe)(state.env_state)
        return (state, timestep.action_mask), (timestep, flat)

    @jax.jit
    def play():
        state, first = envs.reset(jax.random.key(1))
        keys = jax.random.split(jax.random.key(2), 7)
        rest, flat = jax.lax.scan(step, (state, first.action_mask), keys)[1]
        return first, rest, jax.vmap(jax.vmap(expand))(rest.observation), flat

    first, rest, shown, flat = play()
    np.testing.assert_array_equal(shown, flat)
    assert not first.observation.steps.any()
    length, ended = rest.episode_length, rest.terminated | rest.truncated
    np.testing.assert_array_equal(rest.final_observation.steps, length)
    np.testing.assert_array_equal(rest.observation.steps, np.where(ended, 0, length))
    assert (length[ended] == 3).any()

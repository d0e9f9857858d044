"""The game with the number of actions taken in its observation, and policies that heed it."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from games import ENV
from hackmatrix import HackMatrix
from hackmatrix.cli import main
from hackmatrix.networks import PlayerCenteredMLP, player_centered_gru
from hackmatrix.networks.features import NUM_FEATURES, packed_with_time, unpack
from hackmatrix.observation import TimeAwareObservation, compress, expand, with_time
from hackmatrix.play.agents import game_for, load_agent

TIMED = HackMatrix(time_aware=True)


@pytest.fixture(scope="module")
def start():
    """A new game as both environments show it."""
    key = jax.random.key(3)
    return TIMED.reset(key)[1], ENV.reset(key)[1]


@pytest.mark.slow
def test_it_is_the_same_game_and_counts_its_actions():
    steps = jax.jit(TIMED.step), jax.jit(ENV.step)
    states, shown = zip(*(env.reset(jax.random.key(3)) for env in (TIMED, ENV)), strict=True)
    for number in range(6):
        timed, plain = (timestep.observation for timestep in shown)
        assert isinstance(timed, TimeAwareObservation)
        assert timed.steps == number
        np.testing.assert_allclose(expand(timed), plain, rtol=1e-6)
        for one, other in zip(*map(jax.tree.leaves, map(compress, (timed, plain))), strict=True):
            assert (one == other).all()
        action = jnp.argmax(shown[0].action_mask)
        assert (shown[0].action_mask == shown[1].action_mask).all()
        key = jax.random.key(number)
        states, shown = zip(
            *(step(key, state, action) for step, state in zip(steps, states, strict=True)),
            strict=True,
        )


@pytest.mark.slow
def test_a_new_game_counts_from_zero_again():
    env = pm.envs.VectorEnv(HackMatrix(max_steps=3, time_aware=True), 2)
    state, timestep = env.reset(jax.random.key(0))
    step, counts = jax.jit(env.step), []
    for number in range(7):
        counts.append(timestep.observation.steps.tolist())
        actions = jnp.argmax(timestep.action_mask, axis=1)
        state, timestep = step(jax.random.key(number), state, actions)
    assert counts == [[n % 3] * 2 for n in range(7)]


def test_more_actions_than_it_holds_are_as_many_as_it_holds(start):
    game = TIMED.reset(jax.random.key(0))[0].game
    many = eqx.tree_at(lambda it: it.steps, game, jnp.int32(1 << 20))
    assert with_time(start[0].observation.seen, many).steps == (1 << 16) - 1


@pytest.mark.parametrize(
    ("steps", "feature"),
    [(0, 0), (7, 0), (256, 1), (264, 33 / 32), (1016, 127 / 32), (9000, 127 / 32)],
)
def test_time_is_one_more_feature(start, steps, feature):
    observation = eqx.tree_at(lambda it: it.steps, start[0].observation, jnp.uint16(steps))
    seen = unpack(packed_with_time(observation))
    assert seen.shape == (NUM_FEATURES + 1,)
    assert seen[-1] == np.float32(feature)
    plain = PlayerCenteredMLP(4, 1, key=jax.random.key(0))
    np.testing.assert_array_equal(seen[:-1], plain.unpack(plain.features(start[1].observation)))


@pytest.mark.parametrize("make", [PlayerCenteredMLP, player_centered_gru])
def test_a_time_aware_network_heeds_the_time(start, make):
    model = make(8, time_aware=True, key=jax.random.key(0))
    late = eqx.tree_at(lambda it: it.steps, start[0].observation, jnp.uint16(900))
    early, later = (model(x, start[0].action_mask)[1] for x in (start[0].observation, late))
    assert early != later


def test_a_network_that_is_not_plays_on_as_before(start):
    model = PlayerCenteredMLP(8, key=jax.random.key(0))
    values = [model(each.observation, each.action_mask)[1] for each in start]
    assert values[0] == values[1]


def test_it_says_that_the_time_is_missing(start):
    model = PlayerCenteredMLP(8, time_aware=True, key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"HackMatrix\(time_aware=True\)"):
        model(start[1].observation, start[1].action_mask)


def test_a_policy_is_played_in_the_game_that_it_needs(tmp_path: Path):
    for time_aware in (False, True):
        model = PlayerCenteredMLP(4, 1, time_aware=time_aware, key=jax.random.key(0))
        path = tmp_path / str(time_aware)
        pm.save_policy(model, path)
        loaded = pm.load_policy(path, [PlayerCenteredMLP]).model
        assert loaded.time_aware is time_aware
        assert game_for(loaded, 9) == HackMatrix(9, time_aware=time_aware)


@pytest.mark.slow
def test_a_run_is_trained_and_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    small = ["--num-envs=4", "--num-steps=4", "--hidden-dim=4", "--total-timesteps=32"]
    own = [f"--checkpoint-dir={tmp_path}", "--run-name=run", "--no-tensorboard"]
    brief = ["--eval-episodes=2", "--eval-max-steps=4"]
    assert main(["train", "--time-aware", *small, *own, "--eval-interval=2", *brief]) == 0
    assert load_agent(str(tmp_path / "run")).env.time_aware
    assert main(["watch", str(tmp_path / "run"), "--max-steps", "2"]) == 0
    capsys.readouterr()
    assert main(["train", "--time-aware", "--network=board", *small, *own[:1]]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "time-aware is for the networks mlp and recurrent alone" in error

"""jumanji's environments as ours: equal to their own steps, and masks kept."""

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot

from playing import assert_equal, assert_same_play, keys_of, played, replayed
from ppo_mask.adapters.jumanji import JumanjiEnv
from ppo_mask.envs import check_env
from ppo_mask.networks import describe_network, network_for

jumanji = pytest.importorskip("jumanji", reason="pip install 'ppo-mask[jumanji]'")

from jumanji.environments import Cleaner, JobShop, Minesweeper, RubiksCube, Snake  # noqa: E402
from jumanji.environments.logic.minesweeper.generator import UniformSamplingGenerator  # noqa: E402
from jumanji.environments.packing.job_shop import generator as jobs  # noqa: E402
from jumanji.environments.routing.cleaner import generator as rooms  # noqa: E402
from jumanji.types import StepType  # noqa: E402


def snake(time_limit=25):
    return Snake(num_rows=4, num_cols=4, time_limit=time_limit)


class CutMinesweeper(Minesweeper):
    """Cut off after three steps, in jumanji's way: the last step with a discount that is not 0."""

    def step(self, state, action):
        state, timestep = super().step(state, action)
        cut = (state.step_count >= 3) & ~timestep.last()
        last = jnp.where(cut, StepType.LAST, timestep.step_type)
        return state, timestep.replace(step_type=last)


def minesweeper(kind=Minesweeper):
    return kind(UniformSamplingGenerator(num_rows=3, num_cols=4, num_mines=2))


def cleaner(time_limit=15):
    return Cleaner(rooms.RandomGenerator(num_rows=5, num_cols=5, num_agents=2), time_limit)


def job_shop():
    return JobShop(jobs.RandomGenerator(4, 3, max_num_ops=3, max_op_duration=3))


GAMES = {
    "two parts, cut off": lambda: minesweeper(CutMinesweeper),
    "snake": snake,
    "cube, no mask": lambda: RubiksCube(time_limit=12),
    "cleaner, a mask of each part": cleaner,
    "job shop, a mask of each part": job_shop,
}


@pytest.mark.parametrize(
    "name", ["two parts, cut off", *(pytest.param(x, marks=pytest.mark.slow) for x in [*GAMES][1:])]
)
def test_step_equals_jumanji(name):
    game = GAMES[name]()
    env = JumanjiEnv(game)
    resets, keys, actions, ours = played(env)
    has_masks = "a mask of each part" in name
    assert (env.num_actions == env.parts) == has_masks
    values = () if has_masks else env.parts

    def reset(key):
        return game.reset(jax.random.key_data(key))

    def step(key, state, action):
        step_key, reset_key = keys_of(key)
        if values:  # By hand: the last part counts fastest.
            parts = []
            for n in reversed(values):
                parts.insert(0, action % n)
                action = action // n
            action = jnp.stack(parts)
        state, timestep = game.step(state.replace(key=jax.random.key_data(step_key)), action)
        following = jax.tree.map(
            lambda fresh, old: jnp.where(timestep.last(), fresh, old),
            reset(reset_key),
            (state, timestep),
        )
        return following[0], (timestep, following[1])

    theirs = replayed(reset, step, resets, keys, actions)
    assert_same_play(ours, theirs)
    (_, steps, _), (_, (raw, _)) = ours, theirs
    assert_equal(steps.info, raw.extras)
    last, over = np.asarray(raw.step_type) == 2, np.asarray(raw.discount) == 0
    assert last.any()
    assert (last & ~over).any() == (name == "two parts, cut off")
    assert_equal(steps.terminated, last & over)
    assert_equal(steps.truncated, last & ~over)
    mask = getattr(raw.observation, "action_mask", None)
    if mask is None:
        assert steps.action_mask.all()
    else:
        flat = steps.action_mask.shape
        mask = np.asarray(mask)
        if values:
            mask = mask.reshape(flat)
        mask = mask | ~mask.any(axis=-1, keepdims=True)
        assert_equal(steps.action_mask, mask.reshape(flat) | (last & over)[..., None])
        assert not np.asarray(steps.action_mask).all()


@pytest.mark.slow
def test_protocol_is_kept():
    check_env(JumanjiEnv(cleaner()), num_steps=60)


def test_trapped_snake_may_do_anything_and_dies():
    env = JumanjiEnv(snake())
    step, key = jax.jit(env.step), jax.random.key(0)
    state, _ = jax.jit(env.reset)(key)
    # Its tail is 1, its head 5; to the left is a corner between its body and the walls.
    body = jnp.array([[0, 5, 0, 0], [3, 4, 0, 0], [2, 0, 0, 0], [1, 0, 0, 0]])
    head, fruit = (type(state.head_position)(*map(jnp.int32, at)) for at in ((0, 1), (3, 3)))
    state = state.replace(
        body=body > 0,
        body_state=body,
        tail=body == 1,
        head_position=head,
        fruit_position=fruit,
        length=jnp.int32(5),
    )
    left = jnp.int32(3)
    state, timestep = step(key, state, left)
    assert not timestep.observation.action_mask.any()
    assert not timestep.terminated
    assert timestep.action_mask.all()
    for action in range(4):
        assert step(key, state, jnp.int32(action))[1].terminated


def test_states_are_drawn_without_a_window():
    env = JumanjiEnv(snake())
    reset, backend = jax.jit(env.reset), matplotlib.get_backend()
    one, other = (env.draw(*reset(jax.random.key(seed))) for seed in (0, 1))
    assert one.shape == other.shape
    assert (one != other).any()
    assert matplotlib.get_backend() == backend
    assert not pyplot.get_fignums()


class ShortMask(Cleaner):
    """Says nothing about one of the four ways to go."""

    def reset(self, key):
        state, timestep = super().reset(key)
        seen = timestep.observation
        seen = seen._replace(action_mask=seen.action_mask[:, :3])
        return state, timestep.replace(observation=seen)


def test_unsupported_environments_are_refused():
    with pytest.raises(ValueError, match=r"mask of shape \(2, 3\) for actions of \(4, 4\)"):
        JumanjiEnv(ShortMask(rooms.RandomGenerator(num_rows=5, num_cols=5, num_agents=2)))
    with pytest.raises(ValueError, match=r"LevelBasedForaging of jumanji gives rewards of shape"):
        JumanjiEnv("LevelBasedForaging-v0")
    with pytest.raises(ValueError, match="they must be discrete"):
        JumanjiEnv("MultiCVRP-v0")
    with pytest.raises(ValueError, match="Unregistered environment Snake-v9"):
        JumanjiEnv("Snake-v9")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("BinPack-v2", "40 x 6, 20 x 4"),
        ("JobShop-v0", "10 x 2, 20 x 24"),
        ("Knapsack-v1", "50 x 4"),
    ],
)
def test_packing_names_its_sets_of_candidates(name, words):
    env, key = JumanjiEnv(name), jax.random.key(0)
    model = eqx.filter_eval_shape(lambda: network_for(env, "sets", hidden_dim=8, key=key))
    assert f"(sets of {words})" in describe_network(model, env)
    assert JumanjiEnv(snake()).observation_sets is None


@pytest.mark.parametrize(
    ("name", "words"),
    [("Game2048-v1", "4 x 4 cells of 18"), ("Minesweeper-v0", "10 x 10 cells of 10")],
)
def test_boards_name_their_kinds_of_cells(name, words):
    env, key = JumanjiEnv(name), jax.random.key(0)
    model = eqx.filter_eval_shape(lambda: network_for(env, "conv", hidden_dim=8, key=key))
    assert f"({words} kinds)" in describe_network(model, env)

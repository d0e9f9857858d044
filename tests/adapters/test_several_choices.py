"""Several choices at once in Gymnasium's form, MultiDiscrete: taken in, and given out."""

import copy
from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import MultiDiscrete
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import ppo_mask as pm
from playing import learned
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.adapters.to_gymnasium import ToGymnasium
from ppo_mask.adapters.to_gymnasium_vector import ToGymnasiumVector
from ppo_mask.errors import RunError
from python_games import InInfo, InvalidParts

DOORS = pm.envs.probes.MaskedDoors()
GRID = {"dims": [[4, 2], [3, 3]], "start": [[1, 0], [-1, 5]]}


def first_allowed(masks, sizes, turn):
    """An allowed action for each row of masks; not always the first."""
    parts = np.split(np.asarray(masks), np.cumsum(sizes)[:-1], axis=-1)
    return np.stack(
        [np.argmax(x * (1 + (np.arange(x.shape[-1]) + turn) % 3), axis=-1) for x in parts], axis=-1
    )


def played(env, count=3, steps=30):
    vector = pm.VectorEnv(env, count)
    state, timestep = jax.jit(vector.reset)(jax.random.key(0))
    step, shown = jax.jit(vector.step), [timestep]
    for number in range(steps):
        actions = first_allowed(timestep.action_mask, env.num_actions, number)
        state, timestep = step(jax.random.key(number), state, jnp.asarray(actions, jnp.int32))
        shown.append(timestep)
    return shown


@pytest.mark.parametrize("options", [{}, GRID], ids=["a row", "a table, from other numbers"])
def test_steps_equal_the_game_by_hand(options):
    env = GymnasiumEnv(partial(InvalidParts, **options))
    sizes = tuple(np.array(InvalidParts(**options).dims).reshape(-1).tolist())
    assert env.num_actions == sizes
    shown = played(env)
    keys = jax.random.split(jax.random.key(0), 3)
    for row, key in enumerate(keys):
        game = InvalidParts(**options)
        seen, _ = game.reset(seed=int(jax.random.key_data(key)[-1]) & 0x7FFFFFFF)
        for number, timestep in enumerate(shown[:-1]):
            np.testing.assert_array_equal(timestep.observation[row], env.encode(seen))
            np.testing.assert_array_equal(timestep.action_mask[row], game.action_masks())
            action = first_allowed(game.action_masks(), sizes, number).reshape(game.dims.shape)
            seen, reward, _, truncated, _ = game.step(action + game.action_space.start)
            after = shown[number + 1]
            assert after.reward[row] == np.float32(reward)
            np.testing.assert_array_equal(after.final_observation[row], env.encode(seen))
            assert after.truncated[row] == truncated
            if truncated:
                seen, _ = game.reset()
    assert sum(int(timestep.truncated.sum()) for timestep in shown) == 9


@pytest.mark.parametrize(
    "make",
    [
        lambda: GymnasiumEnv(InvalidParts, num_workers=2),
        lambda: GymnasiumEnv(lambda: WithInfo(InvalidParts())),
        *(
            partial(
                GymnasiumEnv.of_vectors,
                lambda n, mode=mode: SyncVectorEnv([InvalidParts] * n, autoreset_mode=mode),
            )
            for mode in AutoresetMode
        ),
    ],
    ids=["workers", "mask in info", *(mode.value for mode in AutoresetMode)],
)
def test_all_ways_in_are_the_same(make):
    env = make()
    ours, theirs = played(env), played(GymnasiumEnv(InvalidParts))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    env.close()


class WithInfo(InInfo):
    def reset(self, **options):
        seen, info = self.env.reset(**options)
        return seen, info | {"action_mask": self.env.action_masks()}


class NothingInAPart(InvalidParts):
    def action_masks(self):
        return super().action_masks() & (np.arange(10) < (10 if self.steps < 2 else 7))


class TooShort(InvalidParts):
    def action_masks(self):
        return super().action_masks()[:-1]


@pytest.mark.parametrize(
    ("game", "line"),
    [
        (NothingInAPart, r"NothingInAPart: action_masks\(\) allows no action in part 2"),
        (
            TooShort,
            r"TooShort: action_masks\(\) has shape \(9,\); "
            r"it must be one row of 10 booleans, part after part$",
        ),
    ],
)
def test_a_wrong_mask_is_one_line(game, line):
    env = GymnasiumEnv(game, flatten=True)
    with pytest.raises(RunError, match=line):
        pm.evaluate(
            pm.MLPActorCritic(10, (4, 3, 3), 4, key=jax.random.key(0)), env, jax.random.key(0), 1
        )


@pytest.mark.slow
def test_the_numbers_shown_are_learned():
    result = learned(GymnasiumEnv(InvalidParts, flatten=True), 12, learning_rate=3e-3, ent_coef=0)
    # Two or three allowed numbers in a part: at random 4 of 9 points.
    assert result.mean_return > 6


def test_an_environment_given_out_is_gymnasiums():
    env = ToGymnasium(DOORS)
    assert env.action_space == MultiDiscrete([4, 6, 6])
    check_env(copy.deepcopy(env), skip_render_check=True)
    observation, _ = env.reset(seed=3)
    for number in range(4):
        masks = env.action_masks()
        assert masks.shape == (16,)
        action = first_allowed(masks, (4, 6, 6), number)
        halves = np.array([2, 3, 3])
        opens = ((action >= halves) == (observation > 0)).all()
        observation, reward, terminated, truncated, _ = env.step(action)
        assert (reward, terminated, truncated) == (float(opens), number == 3, False)
    assert env.action_masks().all()


def test_a_vector_given_out_is_gymnasiums():
    vector = ToGymnasiumVector(DOORS, 5)
    assert vector.single_action_space == MultiDiscrete([4, 6, 6])
    assert vector.action_space.shape == (5, 3)
    vector.reset(seed=0)
    for number in range(6):
        actions = first_allowed(vector.action_masks(), (4, 6, 6), number)
        assert vector.action_space.contains(actions)
        _, reward, terminated, _, _ = vector.step(actions)
        assert terminated.all() == (number == 3)
        assert set(reward.tolist()) <= {0.0, 1.0}
    assert vector.action_masks().shape == (5, 16)


def test_there_and_back_again_is_the_same():
    env = GymnasiumEnv(lambda: ToGymnasium(DOORS))
    assert env.num_actions == DOORS.num_actions
    seed = 7
    state, timestep = env.reset(jax.random.key(seed))
    game = ToGymnasium(DOORS)
    seen, _ = game.reset(seed=seed)
    for number in range(3):
        np.testing.assert_array_equal(timestep.observation, seen)
        np.testing.assert_array_equal(timestep.action_mask, game.action_masks())
        action = first_allowed(game.action_masks(), (4, 6, 6), number)
        seen, reward, _, _, _ = game.step(action)
        state, timestep = env.step(jax.random.key(number), state, jnp.asarray(action, jnp.int32))
        assert timestep.reward == reward


def test_wrong_actions_are_one_line():
    env, vector = ToGymnasium(DOORS), ToGymnasiumVector(DOORS, 2)
    env.reset(seed=0)
    vector.reset(seed=0)
    for action in (1, [1, 2], [1.0, 2.0, 3.0]):
        with pytest.raises(ValueError, match=r"actions must be whole numbers of shape \[3\], got"):
            env.step(action)
    with pytest.raises(ValueError, match=r"actions are 0 to \[3, 5, 5\], got \[4, 0, 0\]"):
        env.step(np.array([4, 0, 0]))
    with pytest.raises(ValueError, match=r"of shape \[2, 3\], got int64\[3\]"):
        vector.step(np.array([1, 2, 3]))
    with pytest.raises(ValueError, match=r"actions are 0 to \[3, 5, 5\], got \[0, -1, 0\]"):
        vector.step(np.array([[0, 0, 0], [0, -1, 0]]))


def test_gymnax_has_no_such_space():
    pytest.importorskip("gymnax", reason="pip install 'ppo-mask[gymnax]'")
    from ppo_mask.adapters.to_gymnax import ToGymnax

    with pytest.raises(ValueError, match="no space for several choices at once, of 4 x 6 x 6"):
        ToGymnax(DOORS)


def test_continuous_actions_are_still_refused():
    with pytest.raises(ValueError, match="they must be Discrete or MultiDiscrete"):
        GymnasiumEnv(lambda: gymnasium.make("Pendulum-v1"))

"""Several environments as one: which is played, what info says, and what is refused."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from corridor import Corridor
from marathon import Marathon
from ppo_mask.envs import AbstractEnv, MultiTask, TimeStep, VectorEnv, check_env


class Signs(AbstractEnv[jax.Array]):
    """One step; what is shown is to be answered, by its sign or by the opposite one."""

    sign: float | jax.Array = 1.0
    name: str = eqx.field(static=True, default="sign")
    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key):
        shown = jax.random.uniform(key, (), minval=-1.0)
        return shown, self._show(shown, jnp.float32(0), False)

    def step(self, key, state, action):
        right = (action == 1) == (state * self.sign > 0)
        return state, self._show(state, right.astype(jnp.float32), True)

    def _show(self, shown, reward, over):
        return TimeStep(
            observation=jnp.stack([shown, jnp.float32(self.sign)]),
            action_mask=jnp.ones(2, bool),
            reward=reward,
            terminated=jnp.asarray(over),
            truncated=jnp.asarray(False),
            info={"task": shown} if self.name == "info" else {},
        )


ARRAYS = MultiTask((Signs(jnp.float32(1)), Signs(jnp.float32(-1))))
NUMBERS = MultiTask((Signs(1.0), Signs(-1.0)))


@pytest.mark.parametrize("env", [ARRAYS, NUMBERS], ids=["as one", "switched"])
def test_the_laws_of_the_protocol_hold(env):
    check_env(env)


@pytest.mark.parametrize("env", [ARRAYS, NUMBERS], ids=["as one", "switched"])
def test_an_episode_is_one_tasks_and_info_says_whose(env):
    vector_env = VectorEnv(env, 64)
    state, timestep = vector_env.reset(jax.random.key(0))
    step = eqx.filter_jit(lambda *args: vector_env.step(*args))
    played = set()
    for n in range(4):
        sign = np.where(timestep.info["task"] == 0, 1, -1) if n == 0 else signs
        np.testing.assert_array_equal(timestep.observation[:, 1], sign)
        shown = np.asarray(timestep.observation[:, 0])
        action = jnp.asarray(np.sign(shown) * sign > 0, jnp.int32)
        state, timestep = step(jax.random.key(n), state, action)
        assert (timestep.reward == 1).all()
        # The info is the last step's; what is shown, the new episode's.
        np.testing.assert_array_equal(timestep.info["task"], np.where(sign == 1, 0, 1))
        signs = np.asarray(timestep.observation[:, 1])
        played |= set(zip(sign.tolist(), signs.tolist(), strict=True))
    assert len(played) == 4


def test_environments_that_differ_in_arrays_are_run_as_one():
    def program(env):
        state, _ = env.reset(jax.random.key(0))
        return str(jax.make_jaxpr(env.step)(jax.random.key(0), state, jnp.int32(0)))

    assert "cond[" not in program(ARRAYS)
    assert "cond[" in program(NUMBERS)
    # Another shape, or another static field: no longer.
    assert "cond[" in program(MultiTask((Signs(jnp.float32(1)), Signs(jnp.float32(1), "b"))))
    assert "cond[" in program(MultiTask((Marathon(), Marathon(jnp.ones(3)))))


def test_tasks_are_drawn_by_their_weights_as_a_curriculum_gives_them():
    @jax.jit
    def drawn(weights):
        env = dataclasses.replace(ARRAYS, weights=weights)
        return jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 4096))[1].info["task"].mean()

    assert drawn(None) == pytest.approx(0.5, abs=0.03)
    assert drawn(jnp.array([1.0, 3.0])) == pytest.approx(0.75, abs=0.03)
    assert drawn(jnp.array([0.0, 1.0])) == 1
    # What a curriculum should not give is never drawn.
    assert drawn(jnp.array([-1.0, 1.0])) == drawn(jnp.array([jnp.nan, 1.0])) == 1


@pytest.mark.parametrize("weights", [[1.0, -1.0], [jnp.nan, 1.0], [jnp.inf, 1.0], [0.0, 0.0]])
def test_weights_that_make_no_sense_are_refused(weights):
    with pytest.raises(ValueError, match="weights must be finite, 0 or more, and not all 0, got"):
        MultiTask((Signs(), Signs()), jnp.array(weights))


@pytest.mark.parametrize(
    ("envs", "message"),
    [
        ((), "at least one environment"),
        (
            (Corridor(5), Corridor(6)),
            r"observation is float32\[5\] in environment 0 but .*6\] in 1",
        ),
        ((Signs(), Signs(), Signs(name="info")), r"info\['task'\] is nothing .* but .* in 2"),
        ((Signs(name="info"),), "have an info 'task' already"),
        ((Corridor(6), Signs()), "num_actions is 3 in environment 0 but 2 in 1"),
    ],
)
def test_what_differs_is_named(envs, message):
    with pytest.raises(ValueError, match=message):
        MultiTask(envs)
    with pytest.raises(ValueError, match="one number for each of the 2 environments"):
        MultiTask(ARRAYS.envs, jnp.ones(3))

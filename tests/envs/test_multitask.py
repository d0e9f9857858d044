"""Several environments as one: which is played, what info says, and what is refused."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marathon import Marathon
from ppo_mask.envs import AbstractEnv, ArrayInfo, MultiTask, TimeStep, VectorEnv, check_env, probes
from ppo_mask.networks import network_for


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


class Sized(AbstractEnv[jax.Array]):
    """Counts up to where it ends; shapes and the range of what it shows are as asked for."""

    num_actions: int = eqx.field(static=True, default=2)
    length: int = eqx.field(static=True, default=3)
    info: jax.Array | None = None

    @property
    def observation_info(self):
        return ArrayInfo(bounds=(0, 20 + self.length))

    def reset(self, key):
        return (state := jax.random.randint(key, (self.length,), 0, 5)), self._show(state, 0.0)

    def step(self, key, state, action):
        state = state.at[0].add(1 + action)
        return state, self._show(state, action / self.num_actions)

    def _show(self, state, reward):
        mask = (jnp.arange(self.num_actions) <= state[0] % 2) | (over := state[0] > 9)
        info = {} if self.info is None else {"extra": self.info + 1}
        return TimeStep(
            state, mask, reward, over, False, {f"first/{self.length}": state[0], **info}
        )


DIFFERENT = MultiTask((Signs(), Sized(3, 5, jnp.float32(1))))
ARRAYS = MultiTask((Signs(jnp.float32(1)), Signs(jnp.float32(-1))))
NUMBERS = MultiTask((Signs(1.0), Signs(-1.0)))


@pytest.mark.parametrize(
    "env",
    [ARRAYS, NUMBERS, pytest.param(DIFFERENT, marks=pytest.mark.slow)],
    ids=["as one", "switched", "different"],
)
def test_the_laws_of_the_protocol_hold(env):
    check_env(env, num_steps=20)


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


@eqx.filter_jit
def played(env, key, keys):
    """The timesteps of an episode's beginning."""

    def step(carry, key):
        state, timestep = carry
        action = jnp.argmax(timestep.action_mask) + jax.random.randint(key, (), 0, 2)
        return (following := env.step(key, state, action)), following[1]

    first = env.reset(key)
    steps = jax.lax.scan(step, first, keys)[1]
    return jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), first[1], steps)


@pytest.mark.parametrize("env", [ARRAYS, NUMBERS, DIFFERENT])
def test_each_task_is_to_the_bit_what_it_is_alone(env):
    key, *keys = jax.random.split(jax.random.key(0), 7)
    for number, alone in enumerate(env.envs):
        chosen = dataclasses.replace(env, weights=jnp.eye(len(env.envs))[number])
        found = played(chosen, key, jnp.stack(keys))
        wanted = played(alone, jax.random.split(key)[1], jnp.stack(keys))
        shown, mask = found.observation, found.action_mask
        if env is DIFFERENT:
            assert (shown["task"] == np.eye(len(env.envs))[number]).all()
            others = [x for i, x in enumerate(shown["observation"]) if i != number]
            assert not any(map(np.any, others))
            shown = shown["observation"][number]
            # Not an action that the task does not have, but for the end, where all are allowed.
            assert (mask[:, alone.num_actions :] == found.terminated[:, None]).all()
            mask = mask[:, : alone.num_actions]
        info = {name: found.info[name] for name in wanted.info}
        assert not any(found.info[name].any() for name in found.info.keys() - {"task", *info})
        found = {**vars(found), "observation": shown, "action_mask": mask, "info": info}
        jax.tree.map(np.testing.assert_array_equal, found, vars(wanted))


def test_a_network_scales_what_each_task_shows_by_its_own_bounds():
    env = MultiTask((Sized(4, 2), Sized(3, 5)))
    assert env.num_actions == 4
    reader = network_for(env, "mlp", hidden_dim=4, key=jax.random.key(0)).reader
    joined = reader.join({"task": jnp.array([0.0, 1]), "observation": (jnp.zeros(2), jnp.ones(5))})
    np.testing.assert_allclose(joined, [0, 0, *[1 / 25] * 5, 0, 1])
    assert ARRAYS.observation_info == ArrayInfo()


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
        ((Signs(), Signs(name="info")), "have an info 'task' already"),
        (
            (Sized(info=jnp.zeros(3)), Sized(), Sized(info=jnp.int32(0))),
            r"info\['extra'\] is float32\[3\] in one environment but int32\[\] in another",
        ),
        (
            (Sized(), probes.MaskedDoors(2)),
            r"num_actions is 2 in one environment but \(4, 6, 6\) in another",
        ),
    ],
)
def test_what_cannot_be_is_one_line(envs, message):
    with pytest.raises(ValueError, match=message):
        MultiTask(envs)
    with pytest.raises(ValueError, match="one number for each of the 2 environments"):
        MultiTask(ARRAYS.envs, jnp.ones(3))

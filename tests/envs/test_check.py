"""check_env finds each broken law, and finds none in environments that keep them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from environments import CartPole, Scripted
from ppo_mask.envs import (
    AbstractEnv,
    AbstractSelfResettingEnv,
    Next,
    ProtocolError,
    TimeLimit,
    TimeStep,
    check_env,
    probes,
)


@pytest.mark.parametrize(
    "env",
    [
        CartPole(),
        TimeLimit(CartPole(), 7),
        probes.MatchObservation(),
        probes.MaskedLocks(),
        probes.MaskedDoors(),
    ],
    ids=lambda env: type(env).__name__,
)
def test_lawful_environments_pass(env):
    check_env(env, num_steps=30)


@pytest.mark.parametrize(
    "env",
    [Scripted(3), probes.Discounting(), probes.EndlessOrOver(True)],
    ids=lambda env: type(env).__name__,
)
def test_lawful_deterministic_environments_pass(env):
    check_env(env, num_steps=30, deterministic=True)


class _Walk(AbstractEnv):
    """A lawful walk of six steps, until a subclass breaks one law."""

    num_actions: int = eqx.field(static=True, default=3)

    def reset(self, key):
        x = jax.random.uniform(key)
        state = (x, jnp.int32(0))
        return state, self.show(state, 0.0)

    def step(self, key, state, action):
        x, steps = state
        state = (x + action + jax.random.uniform(key), steps + 1)
        return state, self.show(state, 1.0)

    def show(self, state, reward):
        x, steps = state
        over = steps >= 6
        return TimeStep(
            observation=x[None],
            action_mask=jnp.array([True, True, False]) | over,
            reward=jnp.float32(reward),
            terminated=over,
            truncated=jnp.array(False),
            info={"x": x},
        )


def _changed(timestep, **fields):
    values = {name: getattr(timestep, name) for name in TimeStep.__dataclass_fields__}
    return TimeStep(**{**values, **fields})


class _NoActions(_Walk):
    num_actions: int = eqx.field(static=True, default=0)


class _OtherMaskLength(_Walk):
    num_actions: int = eqx.field(static=True, default=4)


class _WrongFlagType(_Walk):
    def show(self, state, reward):
        return _changed(super().show(state, reward), truncated=jnp.float32(0))


class _OtherInfoKeys(_Walk):
    def step(self, key, state, action):
        state, timestep = super().step(key, state, action)
        return state, _changed(timestep, info={"y": timestep.info["x"]})


class _OtherObservationType(_Walk):
    def step(self, key, state, action):
        state, timestep = super().step(key, state, action)
        return state, _changed(timestep, observation=timestep.observation.astype(jnp.bfloat16))


class _OtherStateType(_Walk):
    def step(self, key, state, action):
        (x, steps), timestep = super().step(key, state, action)
        return (x, steps.astype(jnp.int16)), timestep


class _OtherStateStructure(_Walk):
    def step(self, key, state, action):
        state, timestep = super().step(key, state, action)
        return list(state), timestep


class _KeyInState(_Walk):
    def reset(self, key):
        state, timestep = super().reset(key)
        return (*state, key), timestep

    def step(self, key, state, action):
        new, timestep = super().step(key, state[:2], action)
        return (*new, state[2]), timestep


class _TerminatedAtReset(_Walk):
    def reset(self, key):
        state, timestep = super().reset(key)
        return state, _changed(timestep, terminated=jnp.array(True))


class _TruncatedAtReset(_Walk):
    def reset(self, key):
        state, timestep = super().reset(key)
        return state, _changed(timestep, truncated=jnp.array(True))


class _NotCompiled(_Walk):
    def step(self, key, state, action):
        if action == 1:
            state = (state[0] + 1, state[1])
        return super().step(key, state, action)


class _MaskAllFalse(_Walk):
    def show(self, state, reward):
        timestep = super().show(state, reward)
        return _changed(timestep, action_mask=timestep.action_mask & (state[1] != 3))


class _MaskAtTheEnd(_Walk):
    def show(self, state, reward):
        mask = jnp.array([True, True, False])
        return _changed(super().show(state, reward), action_mask=mask)


class _RewardNotFinite(_Walk):
    def show(self, state, reward):
        reward = jnp.where(state[1] == 4, jnp.inf, reward)
        return super().show(state, reward)


class _ObservationNotFinite(_Walk):
    def show(self, state, reward):
        observation = jnp.where(state[1] == 4, jnp.nan, state[0])[None]
        return _changed(super().show(state, reward), observation=observation)


_calls = []


class _ImpureStep(_Walk):
    def step(self, key, state, action):
        _calls.append(1)
        return super().step(key, (state[0] + len(_calls), state[1]), action)


class _ImpureReset(_Walk):
    def reset(self, key):
        _calls.append(1)
        (x, steps), _ = super().reset(key)
        state = (x + len(_calls), steps)
        return state, self.show(state, 0.0)


class _KeyUnused(_Walk):
    def reset(self, key):
        return super().reset(jax.random.key(3))

    def step(self, key, state, action):
        return super().step(jax.random.key(3), state, action)


class _OtherWhenBatched(_Walk):
    def step(self, key, state, action):
        batched = "Batch" in type(action).__name__ or "Vmap" in type(action).__name__
        return super().step(key, (state[0] + batched, state[1]), action)


class _ForbiddenActionBreaks(_Walk):
    def step(self, key, state, action):
        state, timestep = super().step(key, state, action)
        reward = jnp.where(action == 2, jnp.nan, timestep.reward)
        return state, _changed(timestep, reward=reward)


class _Walks(_Walk):
    """Two walks at once, whose masks follow each other, until a subclass breaks one law."""

    num_actions: tuple[int, ...] = eqx.field(static=True, default=(3, 2))

    def step(self, key, state, action):
        return super().step(key, state, action[0] + action[1])

    def show(self, state, reward):
        mask = jnp.array([True, True, False, False, True]) | (state[1] >= 6)
        return _changed(super().show(state, reward), action_mask=mask)


class _ListOfActions(_Walks):
    num_actions: tuple[int, ...] = eqx.field(static=True, default_factory=lambda: [3, 2])


class _NoActionsInAPart(_Walks):
    num_actions: tuple[int, ...] = eqx.field(static=True, default=(5, 0))


class _OtherPartLength(_Walks):
    num_actions: tuple[int, ...] = eqx.field(static=True, default=(3, 4))


class _PartAllFalse(_Walks):
    def show(self, state, reward):
        timestep = super().show(state, reward)
        return _changed(timestep, action_mask=timestep.action_mask & (jnp.arange(5) < 3))


class _ForbiddenPartBreaks(_Walks):
    def step(self, key, state, action):
        after, timestep = super().step(key, state, action)
        bad = jnp.where(action[1] == 0, jnp.nan, 0.0)
        ended = state[1] >= 6
        return after, _changed(timestep, reward=timestep.reward + jnp.where(ended, 0.0, bad))


class _SelfResetting(_Walk, AbstractSelfResettingEnv):
    """The walk, with a step that resets by itself."""

    def step_and_reset(self, step_key, reset_key, state, action):
        state, final = self.step(step_key, state, action)
        start, first = self.reset(reset_key)
        following = Next(state, final.observation, final.action_mask)
        fresh = Next(start, first.observation, first.action_mask)
        return final, jax.tree.map(
            lambda new, old: jnp.where(final.terminated | final.truncated, new, old),
            fresh,
            following,
        )


class _ResetsWithOtherKey(_SelfResetting):
    def step_and_reset(self, step_key, reset_key, state, action):
        return super().step_and_reset(step_key, jax.random.split(reset_key)[0], state, action)


class _NeverResets(_SelfResetting):
    def step_and_reset(self, step_key, reset_key, state, action):
        state, final = self.step(step_key, state, action)
        return final, Next(state, final.observation, final.action_mask)


class _StepsOtherwise(_SelfResetting):
    def step_and_reset(self, step_key, reset_key, state, action):
        return super().step_and_reset(step_key, reset_key, state, 1 - action)


class _KeepsOldState(_SelfResetting):
    def step_and_reset(self, step_key, reset_key, state, action):
        final, following = super().step_and_reset(step_key, reset_key, state, action)
        return final, Next(state, following.observation, following.action_mask)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (_NoActions, "num_actions is 0, not a positive int"),
        (_ListOfActions, r"num_actions is \[3, 2\], not a positive int or a tuple of some"),
        (_NoActionsInAPart, r"num_actions is \(5, 0\), not a positive int or a tuple of some"),
        (_OtherPartLength, r"mask is bool\[5\], not bool\[7\]: num_actions is \(3, 4\)"),
        (_PartAllFalse, r"never be all False in a part; it is in part 1 of \(3, 2\)"),
        (_ForbiddenPartBreaks, "reward must be finite after a forbidden action"),
        (_OtherMaskLength, r"timestep.action_mask is bool\[3\], not bool\[4\]"),
        (_WrongFlagType, r"TimeStep.truncated is float32\[\], not bool\[\]"),
        (_OtherInfoKeys, r"timestep.info\['x'\] is float32\[\] from reset but nothing from step"),
        (_OtherObservationType, r"float32\[1\] from reset but bfloat16\[1\] from step"),
        (_OtherStateType, r"state\[1\] is int32\[\] from reset but int16\[\] from step"),
        (_OtherStateStructure, "state has another tree structure from reset than from step"),
        (_KeyInState, r"state\[2\] is a random key"),
        (_TerminatedAtReset, "reset must not give terminated"),
        (_TruncatedAtReset, "reset must not give truncated"),
        (_NotCompiled, "step cannot be compiled by jax.jit"),
        (_MaskAllFalse, "action_mask must never be all False"),
        (_MaskAtTheEnd, "action_mask must be all True where the episode ended"),
        (_RewardNotFinite, "reward must be finite"),
        (_ObservationNotFinite, "observation must be finite"),
        (_ImpureStep, "step must be pure"),
        (_ImpureReset, "reset must be pure"),
        (_KeyUnused, "key is not used"),
        (_OtherWhenBatched, "step must give the same batched by jax.vmap as alone"),
        (_ResetsWithOtherKey, "step_and_reset must give reset's observation where the episode"),
        (_NeverResets, "step_and_reset must give reset's observation where the episode"),
        (_StepsOtherwise, "step_and_reset must give step's timestep"),
        (_KeepsOldState, "step_and_reset must give a state that plays on as"),
        (_ForbiddenActionBreaks, "reward must be finite after a forbidden action"),
    ],
    ids=lambda x: x.__name__.strip("_") if isinstance(x, type) else "",
)
def test_each_broken_law_is_found_and_named(env, message):
    with pytest.raises(ProtocolError, match=message) as error:
        check_env(env(), num_steps=20)
    assert "\n" not in str(error.value)


def test_a_lawful_environment_that_resets_itself_passes():
    check_env(_SelfResetting(), num_steps=20)


def test_a_false_claim_to_be_deterministic_is_found():
    with pytest.raises(ProtocolError, match="key must have no effect"):
        check_env(_Walk(), num_steps=20, deterministic=True)


class _WithEmptyArrays(_Walk):
    """As some games have them: a list of nothing in the state, and in what is shown."""

    def reset(self, key):
        state, timestep = super().reset(key)
        return (state, jnp.zeros((0, 3))), self._with_nothing(timestep)

    def step(self, key, state, action):
        state, timestep = super().step(key, state[0], action)
        return (state, jnp.zeros((0, 3))), self._with_nothing(timestep)

    def _with_nothing(self, timestep):
        return _changed(timestep, observation=(timestep.observation, jnp.zeros((0, 2))))


def test_arrays_may_be_empty():
    check_env(_WithEmptyArrays())

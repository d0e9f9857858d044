"""Tiny environments with known answers: a wrong answer shows which part of a learner is wrong.

Each environment tests one thing that must work; try the environments in order. γ is the discount:

================== ============================================================ ==================
environment        what must work                                               the answer
================== ============================================================ ==================
ConstantValue      the value's loss and its gradient                            V = 1
ObservationValue   the observation reaches the value                            V(o) = o
Discounting        rewards travel back in time                                  V(0) = γ, V(1) = 1
EndlessOrOver      truncation is bootstrapped, termination is not               1/(1-γ), or 1
ActionValue        the advantage reaches the policy                             plays 1, V = 1
MatchObservation   the observation reaches the policy                           a = o, V = 1
MaskedLocks        the mask reaches the policy, and is obeyed                   return ``length``
MaskedDoors        the same for each part of a MultiDiscrete mask               return ``length``
MaskedVaults       the same where a part's mask depends on the parts before     return ``length``
RememberedCue      the hidden state lasts, gradients flow through time          plays o(0), return 1
================== ============================================================ ==================
"""

from abc import abstractmethod
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.envs._env import AbstractEnv, TimeStep
from ppo_mask.envs.actions import ActionLike, Actions
from ppo_mask.jax_tools import IntScalarLike, number_settings


def _timestep(
    observation: Float[Array, ""],
    reward: Float[Array, ""] | float = 0.0,
    terminated: Bool[Array, ""] | bool = False,
    truncated: Bool[Array, ""] | bool = False,
) -> TimeStep:
    mask = jnp.ones(2, bool)
    return TimeStep(observation[None], mask, jnp.float32(reward), terminated, truncated, {})


@number_settings()
def _sign(key: Key[Array, ""]) -> Float[Array, ""]:
    return jax.random.rademacher(key, dtype=jnp.float32)


class _OneStep(AbstractEnv[Float[Array, ""]]):
    """An environment with episodes of one step; the state is the observation, 1 or -1."""

    num_actions: int = eqx.field(static=True, default=2)

    @abstractmethod
    def _reward(self, observation: Float[Array, ""], action: Float[Array, ""]) -> Float[Array, ""]:
        """The reward of the step."""

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, ""], TimeStep]:
        """Samples the observation."""
        observation = _sign(key)
        return observation, _timestep(observation)

    def step(
        self, key: Key[Array, ""], state: Float[Array, ""], action: IntScalarLike
    ) -> tuple[Float[Array, ""], TimeStep]:
        """Ends the episode."""
        del key
        reward = self._reward(state, jnp.asarray(action, jnp.float32))
        return state, _timestep(state, reward, terminated=True)


@final
class ConstantValue(_OneStep):
    """One step, reward 1."""

    def _reward(self, observation: Float[Array, ""], action: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.ones_like(observation)


@final
class ObservationValue(_OneStep):
    """One step; the reward is the observation."""

    def _reward(self, observation: Float[Array, ""], action: Float[Array, ""]) -> Float[Array, ""]:
        return observation


@final
class ActionValue(_OneStep):
    """One step, reward 1 for action 1 and -1 for action 0."""

    def _reward(self, observation: Float[Array, ""], action: Float[Array, ""]) -> Float[Array, ""]:
        return 2.0 * action - 1.0


@final
class MatchObservation(_OneStep):
    """One step; action 1 is right at observation 1, action 0 at -1. Reward 1 if right, else -1."""

    def _reward(self, observation: Float[Array, ""], action: Float[Array, ""]) -> Float[Array, ""]:
        return observation * (2.0 * action - 1.0)


@final
class Discounting(AbstractEnv[Float[Array, ""]]):
    """Two steps: observation 0 and no reward, then observation 1 and reward 1."""

    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, ""], TimeStep]:
        """Starts with observation 0."""
        del key
        return jnp.zeros((), jnp.float32), _timestep(jnp.zeros((), jnp.float32))

    def step(
        self, key: Key[Array, ""], state: Float[Array, ""], action: IntScalarLike
    ) -> tuple[Float[Array, ""], TimeStep]:
        """Steps from observation 0 to 1, and from 1 to the end of the episode."""
        del key, action
        return jnp.ones((), jnp.float32), _timestep(
            jnp.ones((), jnp.float32), reward=state, terminated=state == 1
        )


@final
class EndlessOrOver(AbstractEnv[Float[Array, ""]]):
    """Episodes of one step, with reward 1 and always the same observation.

    If episodes are truncated, rewards would have continued forever: V = 1/(1-γ). If episodes
    terminate, there is only one reward: V = 1.

    Attributes:
        truncates: whether episodes are truncated; else they terminate.
    """

    truncates: bool = eqx.field(static=True)
    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, ""], TimeStep]:
        """Starts an episode."""
        del key
        return jnp.ones((), jnp.float32), _timestep(jnp.ones((), jnp.float32))

    def step(
        self, key: Key[Array, ""], state: Float[Array, ""], action: IntScalarLike
    ) -> tuple[Float[Array, ""], TimeStep]:
        """Truncates or terminates the episode."""
        del key, action
        return state, _timestep(state, 1.0, not self.truncates, self.truncates)


class _Keys(AbstractEnv[tuple[Array, Array, Array]]):
    """Locks in a row; the state is the number of those passed, the observation, and the mask."""

    length: eqx.AbstractVar[int]

    @abstractmethod
    def _parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the keys of each part of an action begin in the mask; its first upper key."""

    @abstractmethod
    def _lock(self, key: Key[Array, ""], passed: Int[Array, ""]) -> tuple[Array, Array, Array]:
        """Samples the next lock's state."""

    def reset(self, key: Key[Array, ""]) -> tuple[tuple[Array, Array, Array], TimeStep]:
        """Starts at the first lock."""
        _, observation, mask = state = self._lock(key, jnp.zeros((), jnp.int32))
        return state, TimeStep(observation, self._shown(mask), jnp.float32(0), False, False, {})

    def step(
        self, key: Key[Array, ""], state: tuple[Array, Array, Array], action: ActionLike
    ) -> tuple[tuple[Array, Array, Array], TimeStep]:
        """Tries a key; with several parts, one in each. A forbidden key ends the episode."""
        passed, observation, mask = state
        action = Actions.of(self.num_actions).convert(action)
        _, uppers = self._parts()
        allowed = self._allows(mask, action)
        right = ((action >= uppers) == (observation > 0)).all()
        over = ~allowed | (passed + 1 >= self.length)
        reward = jnp.float32(allowed & right)
        _, observation, mask = state = self._lock(key, passed + 1)
        return state, TimeStep(observation, self._shown(mask) | over, reward, over, False, {})

    def _shown(self, mask: Bool[Array, " actions"]) -> Bool[Array, " actions"]:
        return mask

    def _allows(self, mask: Bool[Array, " actions"], action: Array) -> Bool[Array, ""]:
        return mask[self._parts()[0] + action].all()


@final
class MaskedLocks(_Keys):
    """``length`` locks in a row; each lock allows two keys, and only the mask shows them.

    Each lock samples one allowed key from the lower half of the actions and one from the upper
    half. The upper key opens the lock if the observation is 1, the lower key if the observation is
    -1. Opening a lock gives a reward of 1. The other allowed key passes the lock without a reward;
    a forbidden key ends the episode. A policy that obeys the mask and the observation gets a return
    of ``length``. Without the mask no policy gets more than 1/(keys - 1) on average, because the
    keys are random.

    Attributes:
        length: number of locks.
        keys: number of keys in each half of the actions.
        num_actions: 2 · ``keys``.
    """

    length: int = eqx.field(static=True)
    keys: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __init__(self, length: int = 8, keys: int = 16):
        self.length = length
        self.keys = keys
        self.num_actions = 2 * keys

    def _parts(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros((), np.int32), np.full((), self.keys, np.int32)

    def _lock(self, key: Key[Array, ""], passed: Int[Array, ""]) -> tuple[Array, Array, Array]:
        keys_key, observation_key = jax.random.split(key)
        low, high = jax.random.randint(keys_key, (2,), 0, self.keys, jnp.int32)
        mask = jnp.zeros(self.num_actions, bool).at[jnp.stack([low, self.keys + high])].set(True)
        return passed, _sign(observation_key)[None], mask


class _Doors(_Keys):
    """Doors of several locks, each with its own number of keys and entry of the observation."""

    length: int = eqx.field(static=True)
    num_actions: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, length: int = 4, keys: tuple[int, ...] = (4, 6, 6)):
        self.length = length
        self.num_actions = keys

    def _parts(self) -> tuple[np.ndarray, np.ndarray]:
        keys = np.array(self.num_actions, np.int32)
        return np.cumsum(keys, dtype=np.int32) - keys, keys // 2

    def _lock(self, key: Key[Array, ""], passed: Int[Array, ""]) -> tuple[Array, Array, Array]:
        low_key, high_key, observation_key = jax.random.split(key, 3)
        starts, halves = self._parts()
        rest = np.array(self.num_actions, np.int32) - halves
        low = jax.random.randint(low_key, halves.shape, 0, halves, jnp.int32)
        high = halves + jax.random.randint(high_key, rest.shape, 0, rest, jnp.int32)
        allowed = jnp.concatenate([starts + low, starts + high])
        mask = jnp.zeros(sum(self.num_actions), bool).at[allowed].set(True)
        signs = jax.vmap(_sign)(jax.random.split(observation_key, len(halves)))
        return passed, signs, mask


@final
class MaskedDoors(_Doors):
    """``length`` doors in a row; an action tries one key in each lock of a door.

    A lock works as in :class:`MaskedLocks`, with its own number of keys and its own entry of the
    observation. The reward is 1 if all locks of a door open. One forbidden key ends the episode. A
    policy that obeys the mask and ignores the observation gets ``length`` / 2 ** locks on average.

    Attributes:
        length: number of doors.
        num_actions: for each lock of a door, the number of keys, at least 2.
    """


@final
class MaskedVaults(_Doors):
    """Doors whose locks turn each other: the key in a lock decides which keys fit in the next.

    As :class:`MaskedDoors`, but the keys that each lock allows move on, within their half of the
    keys, by the sum of the keys in the locks before it. Only ``part_mask`` shows them: a policy
    that obeys it and the observation gets a return of ``length``. Without it, the mask of a later
    lock can only allow each key that fits after some keys before, which is every key. Then no
    policy gets more than 1/8 on average for the default keys: one of nine guesses is right.

    Attributes:
        length: number of doors.
        num_actions: for each lock of a door, the number of keys, at least 2.
    """

    def part_mask(
        self, state: tuple[Array, Array, Array], prefix: Int[Array, " k"], k: int
    ) -> Bool[Array, " choices"]:
        """Moves the keys that a lock allows by the sum of the keys before."""
        return self._turned(state[2], prefix, k)

    def _shown(self, mask: Bool[Array, " actions"]) -> Bool[Array, " actions"]:
        return mask | (np.arange(len(mask)) >= self.num_actions[0])

    def _allows(self, mask: Bool[Array, " actions"], action: Array) -> Bool[Array, ""]:
        fits = [self._turned(mask, action[:k], k)[action[k]] for k in range(len(action))]
        return jnp.stack(fits).all()

    def _turned(self, mask: Array, prefix: Array, k: int) -> Array:
        of_lock = mask[Actions.of(self.num_actions).slice_of(k)]
        halves = jnp.split(of_lock, [len(of_lock) // 2])
        return jnp.concatenate([jnp.roll(half, prefix.sum()) for half in halves])


@final
class RememberedCue(AbstractEnv[tuple[Array, Array]]):
    """The first observation, 1 or -1, is the cue; ``delay`` zeros follow.

    At the last zero, the right action is 1 if the cue was 1, and 0 if the cue was -1. The right
    action has reward 1, the other -1. A policy without memory gets 0 on average.

    Attributes:
        delay: steps after the cue, at least 1.
    """

    delay: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key: Key[Array, ""]) -> tuple[tuple[Array, Array], TimeStep]:
        """Shows the cue."""
        cue = _sign(key)
        return (cue, jnp.zeros((), jnp.int32)), _timestep(cue)

    def step(
        self, key: Key[Array, ""], state: tuple[Array, Array], action: IntScalarLike
    ) -> tuple[tuple[Array, Array], TimeStep]:
        """Shows a zero; the action at the last zero ends the episode."""
        del key
        cue, taken = state
        last = taken == self.delay
        action = jnp.asarray(action, jnp.float32)
        reward = jnp.where(last, cue * (2.0 * action - 1.0), 0.0)
        return (cue, taken + 1), _timestep(jnp.zeros((), jnp.float32), reward, last)

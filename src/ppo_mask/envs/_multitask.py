"""One policy for several environments."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.envs._env import (
    AbstractEnv,
    ArrayInfo,
    Next,
    TimeStep,
    declared_info,
    imagines,
    masks_parts_in_turn,
)
from ppo_mask.envs._host import host_env_in
from ppo_mask.envs._shapes import trace_call
from ppo_mask.envs.actions import Action, ActionLike, Actions, NumActions
from ppo_mask.jax_tools import ArrayTree, check_weights, sane_weights
from ppo_mask.jax_tools._trees import describe_shapes, strong_types, zeros_from_shapes

_TASK, _OBSERVATION = "task", "observation"


class MultiTask(AbstractEnv[tuple[Int[Array, ""], ArrayTree]]):
    """Several environments as one; each episode runs in one of them, sampled at random.

    ``info["task"]`` is the index of the episode's environment. ``info`` has the entries of all
    environments; those of other environments than the episode's are 0.

    If observations and actions of all environments have equal shapes, the policy gets the
    observations as they are, and not the index: the observations must distinguish the tasks. Else
    the policy gets a dictionary: "task", the index as a one-hot vector, and "observation", a tuple
    with an entry for each environment, of which all but the episode's are 0. The mask forbids the
    actions that the episode's environment does not have.

    Environments that differ only in the values of array fields cost as much as one environment.
    With any other difference, ``vmap`` runs all environments for every episode and keeps one
    result. This is fine for few or cheap environments.

    Attributes:
        envs: the environments. MultiDiscrete actions must be the same in all.
        weights: relative probabilities of the environments, not negative and not all 0. None means
            equal probabilities. A curriculum may change the weights.
        num_actions: the largest number of actions of an environment.

    Raises:
        ValueError: the environments do not fit together; the message says why.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> probes = pm.envs.probes
        >>> weights = jnp.array([0.0, 1.0])
        >>> env = pm.MultiTask([probes.ConstantValue(), probes.MaskedLocks(keys=2)], weights)
        >>> state, timestep = env.reset(jax.random.key(0))
        >>> print(timestep.info["task"], timestep.observation["task"], env.num_actions)
        1 [0. 1.] 4
    """

    envs: Sequence[AbstractEnv[Any]] = eqx.field(converter=lambda envs: tuple(envs))
    weights: Float[Array, " tasks"] | None = None
    num_actions: NumActions = eqx.field(static=True, init=False)

    def __post_init__(self) -> None:
        counts = [env.num_actions for env in self.envs]
        self.num_actions = max(counts, default=0, key=lambda n: (Actions.of(n).has_parts, n))

    def __check_init__(self) -> None:
        if not self.envs:
            raise ValueError("there must be at least one environment")
        if any(host_env_in(env) is not None for env in self.envs):
            raise ValueError("MultiTask cannot hold an environment that lives in Python")
        if len({masks_parts_in_turn(env) for env in self.envs}) > 1:
            raise ValueError("MultiTask needs a part_mask in all of its environments, or in none")
        if self.weights is not None and self.weights.shape != (len(self.envs),):
            raise ValueError(
                f"weights must be one number for each of the {len(self.envs)} environments, got an "
                f"array of shape {self.weights.shape}"
            )
        check_weights("weights", self.weights)
        known: dict[str, str] = {}
        for env, timestep in zip(self.envs, _shapes(self.envs)[1], strict=True):
            if _TASK in timestep.info:
                raise ValueError(f"the environments have an info {_TASK!r} already")
            here = {f"info{place}": x for place, x in describe_shapes(timestep.info).items()}
            if isinstance(self.num_actions, tuple):
                here["num_actions"] = str(env.num_actions)
            for name in here.keys() & known.keys():
                if here[name] != known[name]:
                    raise ValueError(
                        f"{name} is {known[name]} in one environment but {here[name]} in another"
                    )
            known |= here

    @property
    def observation_info(self) -> Any:
        """Those of the environments; that of the first if the policy does not see the task."""
        infos = tuple(map(declared_info, self.envs))
        is_plain = _are_alike(_shapes(self.envs)[1])
        return infos[0] if is_plain else {_TASK: ArrayInfo(), _OBSERVATION: infos}

    def reset(self, key: Key[Array, ""]) -> tuple[tuple[Int[Array, ""], ArrayTree], TimeStep]:
        """Samples an environment by the weights, and starts an episode of it."""
        task_key, reset_key = jax.random.split(key)
        weights = jnp.ones(len(self.envs)) if self.weights is None else self.weights
        logits = jnp.log(sane_weights(weights.astype(jnp.float32)))
        task = jax.random.categorical(task_key, logits).astype(jnp.int32)
        state, timestep = self._run(task, lambda env, key: env.reset(key), reset_key)
        return (task, state), _add_task(timestep, task)

    def step(
        self, key: Key[Array, ""], state: tuple[Int[Array, ""], ArrayTree], action: ActionLike
    ) -> tuple[tuple[Int[Array, ""], ArrayTree], TimeStep]:
        """Takes one action in the episode's environment."""
        task, inner = state
        action = Actions.of(self.num_actions).convert(action)
        inner, timestep = self._run(task, lambda env, *args: env.step(*args), key, inner, action)
        return (task, inner), _add_task(timestep, task)

    def part_mask(
        self, state: tuple[Int[Array, ""], ArrayTree], prefix: Int[Array, " k"], k: int
    ) -> Bool[Array, " choices"] | None:
        """That of the episode's environment."""
        task, inner = state
        return self._run(task, lambda env, inner: env.part_mask(inner, prefix, k), inner)

    def imagine(
        self, key: Key[Array, ""], state: tuple[Int[Array, ""], ArrayTree]
    ) -> Next[tuple[Int[Array, ""], ArrayTree]] | None:
        """That of the episode's environment; None if not all environments have one."""
        if not all(map(imagines, self.envs)):
            return None
        task, inner = state
        drawn = self._run(task, lambda env, *args: env.imagine(*args), key, inner)
        return Next((task, drawn.state), drawn.observation, drawn.action_mask)

    def _run(self, task: Int[Array, ""], call: Callable[..., Any], *args: Any) -> Any:
        """Returns ``call(env, *args)`` for the task's environment."""
        arrays, statics = zip(*(eqx.partition(env, eqx.is_array) for env in self.envs), strict=True)
        kinds = {str(describe_shapes(each)) for each in arrays}
        if len(kinds) == 1 and all(eqx.tree_equal(statics[0], each) for each in statics):
            values = jax.tree.map(lambda *each: jnp.stack(each)[task], *arrays)
            return call(eqx.combine(values, statics[0]), *args)
        shapes = _shapes(self.envs)
        members = [_Member(env, number, *shapes) for number, env in enumerate(self.envs)]
        return jax.lax.switch(task, [partial(call, each) for each in members], *args)


class _Member(NamedTuple):
    """One of the environments, with states and timesteps of the same shapes as the others'."""

    env: AbstractEnv[Any]
    number: int
    states: Sequence[Any]
    timesteps: Sequence[Any]

    def reset(self, key: Key[Array, ""]) -> tuple[ArrayTree, TimeStep]:
        return self._padded(*self.env.reset(key))

    def step(
        self, key: Key[Array, ""], state: ArrayTree, action: Action
    ) -> tuple[ArrayTree, TimeStep]:
        if isinstance(self.env.num_actions, int):
            action = jnp.minimum(action, self.env.num_actions - 1)
        return self._padded(*self.env.step(key, self._own(state), action))

    def part_mask(self, state: ArrayTree, prefix: Array, k: int) -> Array | None:
        return self.env.part_mask(self._own(state), prefix, k)

    def imagine(self, key: Key[Array, ""], state: ArrayTree) -> Next[ArrayTree]:
        drawn: Any = self.env.imagine(key, self._own(state))
        shown = TimeStep(drawn.observation, drawn.action_mask, 0.0, False, False, {})
        state, shown = self._padded(drawn.state, shown)
        return Next(state, shown.observation, shown.action_mask)

    def _own(self, state: Any) -> ArrayTree:
        return state if _are_alike(self.states) else state[self.number]

    def _padded(self, state: ArrayTree, timestep: TimeStep) -> tuple[ArrayTree, TimeStep]:
        state, observation, mask = strong_types(state), timestep.observation, timestep.action_mask
        if not _are_alike(self.states):
            state = self._beside_zeros(state, self.states)
        if not _are_alike(self.timesteps):
            shown = self._beside_zeros(observation, [x.observation for x in self.timesteps])
            task = jax.nn.one_hot(self.number, len(shown), dtype=jnp.float32)
            observation = {_TASK: task, _OBSERVATION: shown}
            # After the end of an episode, a mask allows all actions.
            more = max(len(x.action_mask) for x in self.timesteps) - len(mask)
            mask = jnp.append(mask, jnp.full(more, timestep.terminated))
        info = {name: x for each in self.timesteps for name, x in each.info.items()}
        info, reward = zeros_from_shapes(info) | timestep.info, timestep.reward.astype(jnp.float32)
        changed = {"observation": observation, "action_mask": mask, "reward": reward, "info": info}
        return state, dataclasses.replace(timestep, **changed)

    def _beside_zeros(self, tree: ArrayTree, shapes: Sequence[Any]) -> tuple[ArrayTree, ...]:
        return tuple(
            tree if n == self.number else zeros_from_shapes(x) for n, x in enumerate(shapes)
        )


def _add_task(timestep: TimeStep, task: Int[Array, ""]) -> TimeStep:
    return dataclasses.replace(timestep, info={**timestep.info, _TASK: task})


def _shapes(envs: Sequence[AbstractEnv[Any]]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Traces the environments' states and timesteps."""
    traced = [trace_call("reset", env.reset, jax.random.key(0)) for env in envs]
    return [state for state, _ in traced], [timestep for _, timestep in traced]


def _are_alike(trees: Sequence[Any]) -> bool:
    """Whether states have equal shapes; of timesteps, whether observations and masks have."""
    shown = [(x.observation, x.action_mask) if isinstance(x, TimeStep) else x for x in trees]
    return len({f"{jax.tree.structure(x)} {describe_shapes(x)}" for x in shown}) == 1

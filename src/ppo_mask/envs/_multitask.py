"""One policy for several environments."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from ppo_mask.envs._env import AbstractEnv, TimeStep, declared_info
from ppo_mask.envs._host import host_env_in
from ppo_mask.envs._shapes import trace_call
from ppo_mask.envs.actions import ActionLike, Actions, NumActions
from ppo_mask.jax_tools import ArrayTree, check_weights, sane_weights
from ppo_mask.jax_tools._trees import describe_shapes, differences

_TASK = "task"


class MultiTask(AbstractEnv[tuple[Int[Array, ""], ArrayTree]]):
    """Several environments of equal shapes; each episode runs in one of them, sampled at random.

    ``info["task"]`` is the index of the episode's environment. The policy does not see the index,
    so the observations must distinguish the tasks.

    Environments that differ only in the values of array fields cost as much as one environment.
    With any other difference, ``vmap`` runs all environments for every episode and keeps one
    result. This is fine for few or cheap environments.

    Attributes:
        envs: the environments. They must have the same number of actions, and states, observations
            and infos of the same structures, shapes and dtypes.
        weights: relative probabilities of the environments, not negative and not all 0. None means
            equal probabilities. A curriculum may change the weights.
        num_actions: the number of actions of every environment.

    Raises:
        ValueError: the environments do not have equal shapes; the message names the difference.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> probes = pm.envs.probes
        >>> weights = jnp.array([0.0, 1.0])
        >>> env = pm.MultiTask([probes.ConstantValue(), probes.ObservationValue()], weights)
        >>> state, timestep = env.reset(jax.random.key(0))
        >>> int(timestep.info["task"])
        1
    """

    envs: Sequence[AbstractEnv[Any]] = eqx.field(converter=lambda envs: tuple(envs))
    weights: Float[Array, " tasks"] | None = None
    num_actions: NumActions = eqx.field(static=True, init=False)

    def __post_init__(self) -> None:
        self.num_actions = self.envs[0].num_actions if self.envs else 0

    def __check_init__(self) -> None:
        if not self.envs:
            raise ValueError("there must be at least one environment")
        if any(host_env_in(env) is not None for env in self.envs):
            raise ValueError("MultiTask cannot hold an environment that lives in Python")
        if self.weights is not None and self.weights.shape != (len(self.envs),):
            raise ValueError(
                f"weights must be one number for each of the {len(self.envs)} environments, got an "
                f"array of shape {self.weights.shape}"
            )
        check_weights("weights", self.weights)
        first, *others = map(_shapes, self.envs)
        if f"info['{_TASK}']" in first:
            raise ValueError(f"the environments have an info {_TASK!r} already")
        for number, other in enumerate(others, 1):
            for name, was, is_ in differences(first, other):
                raise ValueError(f"{name} is {was} in environment 0 but {is_} in {number}")

    @property
    def observation_info(self) -> Any:
        """That of the first environment."""
        return declared_info(self.envs[0])

    def reset(self, key: Key[Array, ""]) -> tuple[tuple[Int[Array, ""], ArrayTree], TimeStep]:
        """Samples an environment by the weights, and starts an episode of it."""
        task_key, reset_key = jax.random.split(key)
        if self.weights is None:
            task = jax.random.randint(task_key, (), 0, len(self.envs), jnp.int32)
        else:
            weights = sane_weights(self.weights.astype(jnp.float32))
            task = jax.random.categorical(task_key, jnp.log(weights))
        task = task.astype(jnp.int32)
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

    def _run(self, task: Int[Array, ""], call: Callable[..., Any], *args: Any) -> Any:
        """Returns ``call(env, *args)`` for the task's environment."""
        arrays, statics = zip(*(eqx.partition(env, eqx.is_array) for env in self.envs), strict=True)
        kinds = {str(jax.tree.map(lambda x: (x.shape, x.dtype), each)) for each in arrays}
        if len(kinds) == 1 and all(eqx.tree_equal(statics[0], each) for each in statics):
            values = jax.tree.map(lambda *each: jnp.stack(each)[task], *arrays)
            return call(eqx.combine(values, statics[0]), *args)
        branches = [lambda *args, env=env: call(env, *args) for env in self.envs]
        return jax.lax.switch(task, branches, *args)


def _add_task(timestep: TimeStep, task: Int[Array, ""]) -> TimeStep:
    return dataclasses.replace(timestep, info={**timestep.info, _TASK: task})


def _shapes(env: AbstractEnv[Any]) -> dict[str, str]:
    """Describes, by name, everything that must be the same in all environments."""
    state, timestep = trace_call("reset", env.reset, jax.random.key(0))
    parts = {
        "num_actions": str(env.num_actions),
        "state's structure": str(jax.tree.structure(state)),
        "observation's structure": str(jax.tree.structure(timestep.observation)),
    }
    trees = {"state": state, "observation": timestep.observation, "info": timestep.info}
    for what, tree in trees.items():
        parts |= {what + place: leaf for place, leaf in describe_shapes(tree).items()}
    return parts

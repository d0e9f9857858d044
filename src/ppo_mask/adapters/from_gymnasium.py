"""Adapts environments of Gymnasium, written in Python, to this library.

https://gymnasium.farama.org

In: an id, or a function that makes an environment. Out: a :class:`GymnasiumEnv`, which works like
any other environment of this library. One callback from the compiled program steps all
environments, in this process or in worker processes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback
from jax.experimental.buffer_callback import buffer_callback
from jaxtyping import Array, Bool, Int, Key

from ppo_mask.adapters._on_host._host import Host
from ppo_mask.adapters._on_host._makers import Mask, attempt, find_maker, inspect_env, with_mask
from ppo_mask.adapters._on_host._spaces import as_tree, info_of, read_parts
from ppo_mask.adapters._on_host._stepper import (
    BEGUN,
    TERMINATED,
    TRUNCATED,
    Layout,
    Stepper,
    record_of,
)
from ppo_mask.adapters._on_host._workers import Workers
from ppo_mask.devices.platforms import platform_of
from ppo_mask.envs import Next, TimeStep
from ppo_mask.envs._host import AbstractHostEnv
from ppo_mask.envs._jitted import jitted
from ppo_mask.envs.actions import Action, ActionLike, Actions, NumActions
from ppo_mask.envs.drawing import Picture
from ppo_mask.envs.drawing._frames import as_picture
from ppo_mask.errors import RunError
from ppo_mask.jax_tools import ArrayTree

__all__ = ["GymnasiumEnv"]


class HostState(eqx.Module):
    """The state that compiled code sees; it identifies an environment on the host.

    Attributes:
        numbers: the number of the batch of environments, the environment's index in the batch, and
            a serial number of the step.
        observation: the current observation, one array for each part.
    """

    numbers: Int[Array, "3"]
    observation: tuple[Array, ...]


@final
class GymnasiumEnv(AbstractHostEnv[HostState]):
    """An environment of Gymnasium, written in Python and stepped on the host.

    One callback from the compiled program steps all environments of a
    :class:`ppo_mask.envs.VectorEnv`, in this process or in worker processes. The argument ``mask``
    says where the mask is. By default, the adapter looks for two methods, ``action_masks()``
    (sb3-contrib's name) and ``valid_action_mask()``, and for two entries of the infos or of a Dict
    observation, ``action_mask`` and ``valid_actions``. If the adapter finds no mask, all actions
    are allowed, and a warning says so. For MultiDiscrete actions, the masks of the parts are
    concatenated. The last observation of a truncated episode is kept for bootstrapping.

    The state is on the host, so a step cannot be repeated, and checkpoints do not hold the state.
    A resumed run begins new episodes, and counts the lost episodes as truncated. A run must use a
    single device. Everything else is the same as with other environments.

    Attributes:
        num_actions: the number of actions; for MultiDiscrete, a tuple with the number of values of
            each part.
        observation_sets: the environment's own attribute of this name, which says what in its
            observation are sets of candidates (see :class:`ppo_mask.envs.AbstractEnv`); or None.

    Example:
        >>> env = GymnasiumEnv("CartPole-v1")
        >>> state, timestep = env.reset(jax.random.key(7))  # As with gymnasium's reset(seed=7).
        >>> timestep.observation.shape, timestep.action_mask.tolist()
        ((4,), [True, True])
    """

    num_actions: NumActions = eqx.field(static=True)
    observation_sets: Any = eqx.field(static=True)
    _host: Host = eqx.field(static=True)

    def __init__(
        self,
        environment: Any,
        *,
        num_workers: int = 0,
        max_episode_steps: int | None = None,
        infos: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] | None = None,
        mask: Mask = None,
    ):
        """Makes one environment to inspect its spaces, and closes it.

        Args:
            environment: an id that ``gymnasium.make`` knows, such as ``"module:Name-v0"``; a spec;
                or a function that makes a new environment in each call.
            num_workers: the number of processes to step the environments in; 0 for this process.
                Workers pay off if a step takes longer than a round trip to another process.
            max_episode_steps: truncates episodes after this many steps; None for the environment's
                own limit.
            infos: names of infos to keep. Each must be a number; a missing info is 0.
            env_kwargs: arguments for the function that makes the environment, such as
                ``{"size": 3}``.
            mask: the name of the infos' or the observation's entry that is the mask, or of the
                environment's method that returns the mask; or a function of the environment, such
                as ``lambda env: env.unwrapped.legal_moves(0)``. The mask is one boolean for each
                action, or a list of the allowed actions. None looks for the mask as the class's
                docstring says.

        Raises:
            ValueError: what should make an environment does not, its actions are not discrete, or
                its observations are not arrays.
            RunError: the environment is unknown, cannot be made, or has no entry or method
                ``mask``.
        """
        if num_workers < 0:
            raise ValueError(f"num_workers must be 0 or more, got {num_workers}")
        if isinstance(infos, str):
            raise ValueError(f"infos must be a list of names; write [{infos!r}]")
        make, name = find_maker(environment, max_episode_steps, env_kwargs or {})
        make = with_mask(make, mask)
        layout, tree, is_stack, self.observation_sets = inspect_env(name, make, tuple(infos), mask)

        def make_stepper(layout: Layout, num_envs: int) -> Any:
            if num_workers and layout.render_mode is None:
                return Workers(make, layout, num_envs, num_workers)
            return Stepper(make, layout, np.zeros(num_envs, record_of(layout)), 0, num_envs)

        self.num_actions = layout.num_actions
        self._host = Host(layout, tree, is_stack, make_stepper)

    @property
    def name(self) -> str:
        """The environment's name."""
        return self._host.layout.name

    @property
    def observation_info(self) -> Any:
        """The bounds of the space's parts, and where images have their channels, if known."""
        # Stacked frames are the first axis.
        return info_of(self._host.tree, True if self._host.is_stack else None)

    def close(self) -> None:
        """Closes all environments and ends their workers. A later step begins new episodes."""
        self._host.close()

    def __enter__(self) -> "GymnasiumEnv":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def take_failure(self) -> Exception | None:
        return self._host.take_failure()

    def release(self) -> None:
        self._host.release()

    def prepare_to_draw(self, as_text: bool) -> None:
        self._host.prepare_to_draw(as_text)

    def draw(self, state: HostState, timestep: TimeStep) -> Picture | None:
        """Draws the environment by its own ``render``, if it was prepared before its reset."""
        host, ended = self._host, bool(timestep.terminated | timestep.truncated)
        return as_picture(attempt(self.name, lambda: host.draw(state.numbers, ended)))

    @jitted
    def reset(self, key: Key[Array, ""]) -> tuple[HostState, TimeStep]:
        """Starts an episode in a new environment, whose seed is the key's last 31 bits."""
        nothing = np.zeros(Actions.of(self.num_actions).shape, np.int32)
        answer = self._call(self._row(_seed(key), jnp.zeros(3, jnp.int32), nothing, False))
        state, no = HostState(answer["row"][:3], self._arrays(answer, "next")), jnp.array(False)
        reward, infos = self._read_numbers(answer)
        observation = self._observe(state.observation)
        return state, TimeStep(observation, answer["mask"], reward, no, no, infos)

    def step(
        self, key: Key[Array, ""], state: HostState, action: ActionLike
    ) -> tuple[HostState, TimeStep]:
        """Takes one action. If the episode ends, the host also resets the environment."""
        action = Actions.of(self.num_actions).convert(action)
        timestep, following = self.step_and_reset(key, key, state, action)
        return following.state, timestep

    @jitted
    def step_and_reset(
        self,
        step_key: Key[Array, ""],
        reset_key: Key[Array, ""],
        state: HostState,
        action: Action,
        cut: Bool[Array, ""] | bool = False,
    ) -> tuple[TimeStep, Next[HostState]]:
        """Takes one action; a new episode does not reseed the environment.

        See ``AbstractHostEnv.step_and_reset``. ``reset_key`` is used only if the host does not know
        the state, as in a resumed run.
        """
        del step_key
        answer = self._call(self._row(_seed(reset_key), state.numbers, action, cut))
        row = answer["row"]
        begun, terminated = row[BEGUN] != 0, row[TERMINATED] != 0
        # BEGUN means that the host lost the old episode, which counts as truncated.
        truncated = ((row[TRUNCATED] != 0) | cut | begun) & ~terminated
        ended = terminated | truncated
        after = HostState(row[:3], self._arrays(answer, "next"))

        def last(was: Array, then: Array, following: Array) -> Array:
            return jnp.where(begun, was, jnp.where(ended, then, following))

        finals = self._arrays(answer, "final")
        reward, infos = self._read_numbers(answer)
        final = TimeStep(
            self._observe(tuple(map(last, state.observation, finals, after.observation))),
            jnp.where(ended, answer["final_mask"], answer["mask"]) | terminated | begun,
            reward,
            terminated,
            truncated,
            infos,
        )
        return final, Next(after, self._observe(after.observation), answer["mask"])

    def _row(self, seed: Any, numbers: Array, action: Any, cut: Any) -> Int[Array, " columns"]:
        parts = [*jnp.ravel(action)]
        others = [jnp.asarray(x).astype(jnp.int32) for x in (*parts, cut)]
        return jnp.stack([*numbers, *others, seed])

    def encode(self, observation: Any) -> ArrayTree:
        """Converts an observation of the wrapped environment to a policy's input.

        Args:
            observation: an observation from the wrapped environment's ``reset`` or ``step``.

        Returns:
            The observation in the form that this environment's time steps have.

        Raises:
            RunError: the observation is outside the environment's observation space.
        """
        leaves = self._host.layout.leaves
        arrays = attempt(self.name, lambda: read_parts(observation, leaves))
        return self._observe(tuple(map(jnp.asarray, arrays)))

    def _observe(self, arrays: tuple[Array, ...]) -> ArrayTree:
        return as_tree(self._host.tree, list(arrays))

    def _arrays(self, answer: dict[str, Array], name: str) -> tuple[Array, ...]:
        return tuple([answer[f"{name}{i}"] for i in range(len(self._host.layout.leaves))])

    def _read_numbers(self, answer: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
        reward, *infos = answer["numbers"]
        return reward, dict(zip(self._host.layout.infos, infos, strict=True))

    def _call(self, rows: Int[Array, "*batch columns"]) -> dict[str, Array]:
        """Calls the host once for a whole batch, under any number of nested vmaps."""
        if jax.sharding.get_abstract_mesh().manual_axes:
            raise RunError(
                f"{self.name} lives in this process and works on one device only: num_devices "
                "must be 1"
            )

        def shapes(n: int) -> dict[str, Any]:
            answer = self._host.broken(np.zeros((n, 3), np.int32))
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), answer)

        @custom_vmap
        def call(rows: Any) -> Any:
            batch = rows.shape[:-1]
            n = math.prod(batch)
            answer = _call_host(self._host.step, shapes(n), rows.reshape(n, rows.shape[-1]))
            return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), answer)

        @call.def_vmap
        def _(size: int, batched: Any, rows: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
            answer = self._call(rows)
            return answer, jax.tree.map(lambda _: True, answer)

        return call(rows)


def _call_host(function: Callable[[Any], Any], shapes: Any, rows: Array) -> Any:
    """Calls a host function from compiled code."""
    if platform_of(None) != "cpu":
        return io_callback(lambda rows: jax.tree.map(np.array, function(rows)), shapes, rows)

    # buffer_callback takes an eighth of io_callback's time, but here works only on a CPU: elsewhere
    # the device owns the buffers.
    def fill(_: Any, out: Any, rows: Any) -> None:
        for name, array in function(rows).items():
            np.asarray(out[name])[...] = array

    return buffer_callback(fill, shapes, has_side_effect=True)(rows)


def _seed(key: Key[Array, ""]) -> Int[Array, ""]:
    return (jax.random.key_data(key)[-1] & jnp.uint32(0x7FFFFFFF)).astype(jnp.int32)

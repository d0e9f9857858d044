"""``GymnasiumEnv``: compiled code that calls the host once per step of all environments."""

import atexit
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, cast, final, no_type_check

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback
from jax.experimental.buffer_callback import buffer_callback
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.adapters._gymnasium import gymnasium
from ppo_mask.adapters._shared import Method, StaticObject
from ppo_mask.adapters.from_gymnasium._drawing import DrawnStepper
from ppo_mask.adapters.from_gymnasium._host import BEGUN, TERMINATED, TRUNCATED, Answer, Host
from ppo_mask.adapters.from_gymnasium._makers import (
    Inspected,
    Mask,
    attempt,
    find_maker,
    find_masks,
    first_made,
    inspect_env,
    with_mask,
)
from ppo_mask.adapters.from_gymnasium._spaces import as_tree, info_of, read_parts
from ppo_mask.adapters.from_gymnasium._stepper import Stepper, make_arrays
from ppo_mask.adapters.from_gymnasium._vectors import VectorStepper, find_masks_of
from ppo_mask.adapters.from_gymnasium._workers import Workers
from ppo_mask.devices.interrupts import second_interrupt_ends
from ppo_mask.devices.platforms import platform_of
from ppo_mask.envs import Next, TimeStep
from ppo_mask.envs._host import AbstractHostEnv, host_env_in
from ppo_mask.envs.actions import Action, ActionLike, Actions, NumActions
from ppo_mask.envs.drawing import Picture
from ppo_mask.envs.drawing._frames import as_picture
from ppo_mask.errors import RunError
from ppo_mask.jax_tools import ArrayTree, jit_inline


def calls_host(method: Method) -> Method:
    """Compiles a method once, if its caller is not compiled, and raises the host's errors there."""
    compiled = jit_inline(method)

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, Tracer) for x in jax.tree.leaves((self, args, kwargs))):
            return method(self, *args, **kwargs)
        with second_interrupt_ends():
            result = jax.block_until_ready(compiled(self, *args, **kwargs))
        env: Any = host_env_in(self)
        if (failure := env.take_failure()) is not None:  # Compiled code cannot raise errors.
            raise failure
        return result

    return cast(Method, call)


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
    are allowed. A warning then says so, and names what may be a mask under another name. For
    MultiDiscrete actions, the masks of the parts are concatenated. The last observation of a
    truncated episode is kept for bootstrapping.

    The state is on the host, so a step cannot be repeated, and checkpoints do not hold the state.
    A resumed run begins new episodes, and counts the lost episodes as truncated. A run must use a
    single device. Everything else is the same as with other environments.

    Attributes:
        num_actions: the number of actions; for MultiDiscrete, a tuple with the number of values of
            each part.

    Example:
        >>> env = GymnasiumEnv("CartPole-v1")
        >>> state, timestep = env.reset(jax.random.key(7))  # As with gymnasium's reset(seed=7).
        >>> timestep.observation.shape, timestep.action_mask.tolist()
        ((4,), [True, True])
    """

    num_actions: NumActions = eqx.field(static=True)
    _channels_first: bool | None = eqx.field(static=True)
    _infos: tuple[str, ...] = eqx.field(static=True)
    _space: StaticObject = eqx.field(static=True)
    _held: StaticObject = eqx.field(static=True)

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
            ValueError: the environment is unknown, its actions are not discrete, or its
                observations are not arrays.
            RunError: the environment cannot be made, or has no entry or method ``mask``.
        """
        if num_workers < 0:
            raise ValueError(f"num_workers must be 0 or more, got {num_workers}")
        make, name = find_maker(environment, max_episode_steps, env_kwargs or {})
        make = with_mask(make, mask)
        env = first_made(name, make, gymnasium.Env)
        inspected = inspect_env(name or type(env.unwrapped).__name__, env, "", find_masks, mask)

        def make_stepper(layout: Any) -> Any:
            if layout["render_mode"] is not None:
                return DrawnStepper(make, layout)
            if num_workers:
                return Workers(make, layout, num_workers)
            return Stepper(make, layout, make_arrays(layout), 0, layout["num_envs"])

        self._set_up(inspected, make_stepper, infos)

    @classmethod
    def of_vectors(
        cls, make_vector: Callable[[int], Any], *, infos: Sequence[str] = (), mask: Mask = None
    ) -> "GymnasiumEnv":
        """Wraps Gymnasium's vector environments, such as a vector that steps all copies at once.

        Any autoreset mode works, except ``NEXT_STEP`` in a custom vector (neither ``SyncVectorEnv``
        nor ``AsyncVectorEnv``), which spends a step on each reset.

        Args:
            make_vector: makes a vector environment of a given size, such as
                ``lambda n: gymnasium.make_vec("CartPole-v1", n)``.
            infos: as in the constructor.
            mask: as in the constructor, but a function gets the vector, and returns a mask for each
                environment.

        Raises:
            ValueError: actions are not discrete, or observations are not arrays.
            RunError: the vector cannot be made, or has no entry or method ``mask``.
        """
        make_vector = with_mask(make_vector, mask)
        vector = first_made("", lambda: make_vector(1), gymnasium.vector.VectorEnv)
        spec = getattr(vector, "spec", None)
        name = type(vector.unwrapped).__name__ if spec is None else spec.id
        inspected = inspect_env(name, vector, "single_", find_masks_of, mask)

        def make_stepper(layout: Any) -> Any:
            return VectorStepper(make_vector, layout, make_arrays(layout))

        env = object.__new__(cls)
        env._set_up(inspected, make_stepper, infos)
        return env

    def _set_up(
        self, inspected: Inspected, make_stepper: Callable[[Any], Any], infos: Sequence[str]
    ) -> None:
        if isinstance(infos, str):
            raise ValueError(f"infos must be a list of names; write [{infos!r}]")
        put = partial(object.__setattr__, self)
        put("num_actions", inspected.num_actions)
        put("_channels_first", inspected.channels_first)
        put("_infos", tuple(infos))
        put("_space", StaticObject(inspected.space))
        actions = Actions.of(inspected.num_actions)
        layout = {
            "mask_length": actions.length,
            "mask_starts": actions.starts,
            "has_parts": actions.has_parts,
            "action_shape": inspected.action_shape,
            "start": inspected.start,
            "leaves": [leaf[:4] for leaf in inspected.leaves],
            "mask": inspected.mask,
            "infos": tuple(infos),
            "render_modes": inspected.render_modes,
            "render_mode": None,
        }
        host = Host(inspected.name, layout, make_stepper)
        put("_held", StaticObject(host))
        atexit.register(_end, weakref.ref(host))

    @property
    def _host(self) -> Host:
        return self._held.value

    @property
    def observation_info(self) -> Any:
        """The bounds of the space's parts, and where images have their channels, if known."""
        return info_of(self._space.value, self._channels_first)

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
        numbers, ended = state.numbers, timestep.terminated | timestep.truncated
        return as_picture(attempt(self._host.name, lambda: self._host.draw(numbers, bool(ended))))

    @calls_host
    def reset(self, key: Key[Array, ""]) -> tuple[HostState, TimeStep]:
        """Starts an episode in a new environment, whose seed is the key's last 31 bits."""
        nothing = np.zeros(Actions.of(self.num_actions).shape, np.int32)
        row = self._row(_seed(key), jnp.zeros(3, jnp.int32), nothing, False)
        answer = self._call(self._host.begin, row)
        state = HostState(answer.rows[:3], answer.next)
        infos = self._read_infos(answer.reward)
        reward, no = answer.reward[0], jnp.array(False)
        observation = self._observe(answer.next)
        return state, TimeStep(observation, answer.mask, reward, no, no, infos)

    def step(
        self, key: Key[Array, ""], state: HostState, action: ActionLike
    ) -> tuple[HostState, TimeStep]:
        """Takes one action. If the episode ends, the host also resets the environment."""
        action = Actions.of(self.num_actions).convert(action)
        timestep, following = self.step_and_reset(key, key, state, action)
        return following.state, timestep

    @calls_host
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
        row = self._row(_seed(reset_key), state.numbers, action, cut)
        answer = self._call(self._host.step, row)
        begun = answer.rows[BEGUN] != 0
        terminated = answer.rows[TERMINATED] != 0
        # BEGUN means that the host lost the old episode, which counts as truncated.
        truncated = ((answer.rows[TRUNCATED] != 0) | cut | begun) & ~terminated
        ended = terminated | truncated

        def last(was: Array, then: Array, following: Array) -> Array:
            return jnp.where(begun, was, jnp.where(ended, then, following))

        observation = tuple(map(last, state.observation, answer.final, answer.next))
        final = TimeStep(
            self._observe(observation),
            jnp.where(ended, answer.final_mask, answer.mask) | terminated | begun,
            answer.reward[0],
            terminated,
            truncated,
            self._read_infos(answer.reward),
        )
        after = HostState(answer.rows[:3], answer.next)
        return final, Next(after, self._observe(answer.next), answer.mask)

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
        leaves = self._host.layout["leaves"]
        arrays = attempt(self._host.name, lambda: read_parts(observation, leaves))
        return self._observe(tuple(map(jnp.asarray, arrays)))

    def _observe(self, arrays: tuple[Array, ...]) -> ArrayTree:
        return as_tree(self._space.value, list(arrays))

    def _read_infos(self, numbers: Float[Array, " n"]) -> dict[str, Array]:
        return {name: numbers[i] for i, name in enumerate(self._infos, 1)}

    def _call(self, function: Callable[[Any], Answer], rows: Int[Array, "*batch columns"]) -> Any:
        """Calls the host once for a whole batch, under any number of nested vmaps."""
        if jax.sharding.get_abstract_mesh().manual_axes:
            raise RunError(
                f"{self._host.name} lives in this process and works on one device only: "
                "num_devices must be 1"
            )

        def shapes(n: int) -> Answer:
            answer = self._host.broken(np.zeros((n, 3), np.int32))
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), answer)

        @custom_vmap
        def call(rows: Any) -> Any:
            batch = rows.shape[:-1]
            n = math.prod(batch)
            answer = _call_host(function, shapes(n), rows.reshape(n, rows.shape[-1]))
            return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), answer)

        @call.def_vmap
        def _(size: int, batched: Any, rows: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
            answer = self._call(function, rows)
            return answer, jax.tree.map(lambda _: True, answer)

        answer = call(rows)
        # Compiled code cannot raise errors. Outside of compiled code, this is the place to raise.
        if not isinstance(answer.rows, Tracer):
            jax.block_until_ready(answer)
            if (failure := self.take_failure()) is not None:
                raise failure
        return answer


def _call_host(function: Callable[..., Any], shapes: Any, *arrays: Array) -> Any:
    """Calls a host function from compiled code."""
    if platform_of(None) != "cpu":

        @no_type_check
        def copies(*arrays: Any) -> Any:
            return jax.tree.map(np.array, function(*arrays))

        return io_callback(copies, shapes, *arrays)

    # buffer_callback takes an eighth of io_callback's time, but here works only on a CPU: elsewhere
    # the device owns the buffers.
    @no_type_check
    def fill(context: Any, out: Any, *arrays: Any) -> None:
        del context
        for buffer, array in zip(
            jax.tree.leaves(out), jax.tree.leaves(function(*arrays)), strict=True
        ):
            np.asarray(buffer)[...] = array

    return buffer_callback(fill, shapes, has_side_effect=True)(*arrays)


def _seed(key: Key[Array, ""]) -> Int[Array, ""]:
    return (jax.random.key_data(key)[-1] & jnp.uint32(0x7FFFFFFF)).astype(jnp.int32)


def _end(host: Any) -> None:
    if (alive := host()) is not None:
        alive.end()

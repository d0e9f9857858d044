"""The environment protocol, which is independent of learning.

An environment is a pair of pure functions, ``reset`` and ``step``, for one episode at a time.
Randomness comes in as a key argument, never from the state. :class:`ppo_mask.envs.VectorEnv` adds
batching and episode statistics.
"""

import dataclasses
import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, SupportsFloat, TypeVar, cast, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.envs.actions import Action
from ppo_mask.errors import ProtocolError, user_line
from ppo_mask.jax_tools import ArrayTree, rarely
from ppo_mask.jax_tools._trees import changes, describe_shapes, plain_dicts, strong_types

State = TypeVar("State")

if TYPE_CHECKING:
    _Given = jax.typing.ArrayLike
else:
    _Given = Any  # Checked below, with errors that suggest a fix.


def _as_array(name: str, given: Any) -> Array:
    """Converts a field's Python number or NumPy array to a JAX array."""
    if isinstance(given, jax.Array):
        return given
    try:
        return jnp.asarray(given, jnp.result_type(given))  # The explicit dtype is not weak.
    except (TypeError, ValueError):
        raise _wrong(name, f"a {type(given).__name__}", "an array") from None


def _as_tree(name: str) -> Any:
    def convert(given: Any) -> Any:
        given = plain_dicts(given)
        leaves = jax.tree_util.tree_leaves_with_path(given)
        arrays = [_as_array(name + jax.tree_util.keystr(path), leaf) for path, leaf in leaves]
        return jax.tree.unflatten(jax.tree.structure(given), arrays)

    return convert


def _as_flag(name: str) -> Callable[[_Given], Any]:
    def convert(given: _Given) -> Any:
        flag = _as_array(name, given)
        return _checked(name, flag, flag.dtype == bool and flag.ndim == 0, "bool[]")

    return convert


def _as_mask(given: _Given) -> Any:
    mask = _as_array("action_mask", given)
    fits = mask.dtype == bool and mask.ndim == 1
    return _checked("action_mask", mask, fits, "bool[actions]: True where an action is allowed")


def _as_reward(given: _Given) -> Any:
    reward = _as_array("reward", given)
    is_whole = jnp.issubdtype(reward.dtype, jnp.integer) or reward.dtype == bool
    reward = reward.astype(jnp.float32) if is_whole else reward
    fits = jnp.issubdtype(reward.dtype, jnp.floating) and reward.ndim == 0
    return _checked("reward", reward, fits, "one number")


def _checked(name: str, array: Array, fits: Any, wanted: str) -> Array:
    if not fits:
        raise _wrong(name, describe_shapes(array)[""], wanted)
    return array


def _wrong(name: str, given: str, wanted: str) -> ProtocolError:
    return ProtocolError(f"TimeStep.{name} is {given}, not {wanted}{user_line()}")


class TimeStep(eqx.Module):
    """The result of ``reset`` or ``step``, for an agent and its learner.

    The constructor converts Python numbers, Python booleans and NumPy arrays to JAX arrays, an
    integer reward to float32, and an OrderedDict to a dict.

    Attributes:
        observation: any tree of arrays, of the same structure, shapes and dtypes at every step.
        action_mask: True where an action is allowed. A mask allows at least one action (if
            MultiDiscrete, one in each part). In a terminal state, the mask allows all actions.
            Where the episode was only cut off, the mask is that of the state, as if it went on: an
            algorithm may look there for the best action.
        reward: the reward of the step just taken. The reward that ``reset`` returns is not used.
        terminated: the episode ended in a terminal state, whose value is 0.
        truncated: the episode was cut off, for example by a step limit; PPO bootstraps the value.
        info: per-step arrays for metrics, with the same keys and shapes from ``reset`` and
            ``step``.

    Raises:
        ProtocolError: a field has a wrong shape or type; the one-line message names the field.

    Example:
        >>> import jax.numpy as jnp, ppo_mask as pm
        >>> timestep = pm.TimeStep(
        ...     observation=jnp.zeros(4),
        ...     action_mask=jnp.array([True, False, True]),
        ...     reward=jnp.float32(0),
        ...     terminated=jnp.array(False),
        ...     truncated=jnp.array(False),
        ...     info={"score": jnp.float32(0)},
        ... )
        >>> int(timestep.action_mask.sum())
        2
    """

    observation: ArrayTree = eqx.field(converter=_as_tree("observation"))
    action_mask: Bool[Array, " actions"] = eqx.field(converter=_as_mask)
    reward: Float[Array, ""] = eqx.field(converter=_as_reward)
    terminated: Bool[Array, ""] = eqx.field(converter=_as_flag("terminated"))
    truncated: Bool[Array, ""] = eqx.field(converter=_as_flag("truncated"))
    info: dict[str, Array] = eqx.field(converter=_as_tree("info"))

    if TYPE_CHECKING:  # Mypy knows no converters.

        def __init__(
            self,
            observation: Any,
            action_mask: _Given,
            reward: _Given,
            terminated: _Given,
            truncated: _Given,
            info: Mapping[str, _Given],
        ) -> None: ...


@final
@dataclasses.dataclass(frozen=True)
class ArrayInfo:
    """What an environment knows of an array of its observation, beyond its shape and dtype.

    Attributes:
        bounds: the lowest and the highest value; None if unknown. The library's networks scale
            integers between bounds to [0, 1], unless they are 10 at most.
        channels_first: for an image or a board, whether its first axis, not its last, has the
            channels; None if unknown.
    """

    bounds: tuple[SupportsFloat, SupportsFloat] | None = None
    channels_first: bool | None = None


def declared_info(env: Any) -> Any:
    """Returns an environment's ``observation_info``; an empty ``ArrayInfo`` if it has none."""
    return getattr(env, "observation_info", ArrayInfo())


class Next(eqx.Module, Generic[State]):
    """The state in which the next action is taken.

    If the step ended its episode, this is the first state of a new episode.

    Attributes:
        state: the environment's state.
        observation: the observation of that state.
        action_mask: True where an action is allowed in that state.
    """

    state: ArrayTree = eqx.field(converter=strong_types)
    observation: ArrayTree
    action_mask: Bool[Array, " actions"]


class AbstractEnv(eqx.Module, Generic[State]):
    """An environment: one episode at a time, pure, jit-able and vmap-able.

    :func:`ppo_mask.envs.check_env` tests an implementation for every law below.

    - ``reset`` and ``step`` are deterministic in their arguments; states do not hold a key.
    - States, observations and infos keep their structure, shapes and dtypes.
    - ``step`` never resets. The result of a step after the end of an episode is unspecified.
    - An action outside the mask must not crash; the environment documents the action's effect.

    Where the choice of one part of a MultiDiscrete action decides what a later part may be, the
    environment overrides :meth:`part_mask`. Where something is hidden from the player, it may
    override :meth:`imagine`.

    An environment may also have a method ``draw(state, timestep)``, for the command ``watch``. The
    method gets what ``reset`` or ``step`` returned, and returns a
    :data:`ppo_mask.envs.drawing.Picture`, or None.

    Attributes:
        num_actions: length of the mask; actions are 0 to ``num_actions`` - 1. For MultiDiscrete
            actions, a tuple ``(a, b, …)``: an action is an array with one number for each part, and
            the mask concatenates the parts' masks to a length of ``a + b + …``.
        observation_info: optional; an :class:`ArrayInfo` for all arrays of the observation, or a
            tree of them like the observation.
        observation_sets: optional; which arrays of the observation are sets of candidates, as
            :class:`ppo_mask.networks.SetReader` takes them.
        action_names: optional; a name for each entry of the mask, for exported policies.

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp, ppo_mask as pm
        >>> class Stairs(pm.AbstractEnv):
        ...     num_actions: int = eqx.field(static=True, default=2)
        ...     def reset(self, key):
        ...         floor = jax.random.randint(key, (), 0, 3)
        ...         return floor, self.timestep(floor)
        ...     def step(self, key, state, action):
        ...         floor = jnp.maximum(state + 2 * action - 1, 0)
        ...         return floor, self.timestep(floor, reward=action.astype(jnp.float32))
        ...     def timestep(self, floor, reward=jnp.float32(0)):
        ...         ended = floor >= 5
        ...         mask = jnp.stack([floor > 0, jnp.array(True)])  # Nothing is below floor 0.
        ...         return pm.TimeStep(
        ...             jnp.float32(floor)[None], mask | ended, reward, ended, jnp.array(False), {}
        ...         )
        >>> state, timestep = Stairs().reset(jax.random.key(0))
        >>> state, timestep = Stairs().step(jax.random.key(1), jnp.int32(0), jnp.int32(1))
        >>> print(state, timestep.reward, timestep.action_mask)
        1 1.0 [ True  True]
    """

    if TYPE_CHECKING:
        # A NumActions. Typed as Any, so that type checkers let an environment narrow it; and as no
        # field, which they would count before all fields of an environment.
        num_actions = cast(Any, None)
    else:
        num_actions: eqx.AbstractVar[Any]

    @abstractmethod
    def reset(self, key: Key[Array, ""]) -> tuple[State, TimeStep]:
        """Starts an episode.

        Args:
            key: the random key of the episode's start.

        Returns:
            The state, which is any tree of arrays, and the first timestep. The first timestep does
            not end the episode.
        """

    @abstractmethod
    def step(self, key: Key[Array, ""], state: State, action: Action) -> tuple[State, TimeStep]:
        """Takes one action.

        Args:
            key: the random key of the step.
            state: a state of an episode that has not ended.
            action: from 0 to ``num_actions`` - 1; if MultiDiscrete, one number for each part.

        Returns:
            The next state and its timestep.
        """

    def part_mask(
        self, state: State, prefix: Int[Array, " k"], k: int
    ) -> Bool[Array, " choices"] | None:
        """Returns which choices of a part are allowed after the choices of the parts before it.

        By default None: the parts of a MultiDiscrete action know nothing of each other, and the
        timestep's mask has all of their masks. Else the timestep's mask has that of part 0, and
        True for all later parts. A network may read no more of the mask than that of part 0: it
        learns from the masks along the path of the action that it chose. A wrapper must pass the
        call on to the environment inside, as :class:`TimeLimit` does.

        Args:
            state: a state of an episode that has not ended.
            prefix: the choices of parts 0 to ``k`` - 1, of which each was allowed.
            k: the part, counted from 0; a Python number. For part 0, the mask is the timestep's.

        Returns:
            A mask of the part's own choices, which allows at least one.
        """
        del state, prefix, k

    def imagine(self, key: Key[Array, ""], state: State) -> Next[State] | None:
        """Draws a state that looks the same to the player, for :class:`ppo_mask.search.Search`.

        What the player cannot see is drawn, as likely as it is given what the player sees; all else
        stays. By default None: nothing is hidden, or a search sees all. A wrapper must pass the
        call on to the environment inside, as :class:`TimeLimit` does.

        Args:
            key: the random key of what is hidden.
            state: a state of an episode that has not ended.

        Returns:
            The drawn state with its observation and mask, which must be those of ``state``.
        """
        del key, state

    def step_and_reset(
        self, step_key: Key[Array, ""], reset_key: Key[Array, ""], state: State, action: Action
    ) -> tuple[TimeStep, Next[State]]:
        """Takes one action and, if that ends the episode, starts another: the only auto-reset.

        :class:`VectorEnv` calls this method. Override it where step and reset share work, such as
        generating a level.

        Args:
            step_key: as for ``step``.
            reset_key: as for ``reset``.
            state: a state of an episode that has not ended.
            action: from 0 to ``num_actions`` - 1; if MultiDiscrete, one number for each part.

        Returns:
            The timestep of ``step(step_key, state, action)``, and the state before the next action.
            If the step ended the episode, this state is from ``reset(reset_key)``, else from the
            step.
        """
        after, final = self.step(step_key, state, action)

        # The environment's arrays are operands, because they may change during a run.
        arrays, static = eqx.partition(self, eqx.is_array)

        def fresh(operand: tuple[ArrayTree, Key[Array, ""]]) -> Next[State]:
            state, timestep = eqx.combine(operand[0], static).reset(operand[1])
            # The info from ``reset`` is dropped here, so only this check notices a wrong type.
            require_same_types("timestep.info", timestep.info, final.info)
            return Next(state, timestep.observation, timestep.action_mask)

        following = Next(after, final.observation, final.action_mask)
        ended = final.terminated | final.truncated
        return final, rarely(ended, fresh, (arrays, reset_key), following)


def masks_parts_in_turn(env: AbstractEnv[Any]) -> bool:
    """Whether an environment, or the one that it wraps, has a :meth:`AbstractEnv.part_mask`.

    Raises:
        ProtocolError: a wrapper does not pass the call on.
    """
    return has_method(env, "part_mask")


def imagines(env: AbstractEnv[Any]) -> bool:
    """Whether an environment, or the one that it wraps, has a :meth:`AbstractEnv.imagine`.

    Raises:
        ProtocolError: a wrapper does not pass the call on.
    """
    if not has_method(env, "imagine"):
        return False
    key = jax.random.key(0)
    return jax.eval_shape(env.imagine, key, jax.eval_shape(env.reset, key)[0]) is not None


def has_method(env: AbstractEnv[Any], method: str) -> bool:
    """Whether an environment, or the one that it wraps, has an optional method of its own.

    Raises:
        ProtocolError: a wrapper does not pass the call on.
    """

    def is_inside(node: Any) -> bool:
        return isinstance(node, AbstractEnv) and node is not env

    inside = [x for x in jax.tree.leaves(env, is_leaf=is_inside) if is_inside(x)]
    below = any(has_method(x, method) for x in inside)
    if method == "part_mask" and not isinstance(env.num_actions, tuple):
        return False  # Such as a wrapper that makes each combination of parts an action.
    own = getattr(type(env), method) is not getattr(AbstractEnv, method)
    if below and not own:
        _, *arguments = inspect.signature(getattr(AbstractEnv, method)).parameters
        raise ProtocolError(
            f"{type(env).__name__} holds an environment with the method {method}, and must have "
            f"{method}({', '.join(arguments)}) too, which calls that of the environment inside"
        )
    return own and (below or not inside)


def require_same_types(what: str, reset: Any, step: Any) -> None:
    """Raises a ProtocolError that names the array whose type differs between reset and step."""
    for name, was, is_ in sorted(changes(reset, step)):
        raise ProtocolError(f"{what}{name} is {was} from reset but {is_} from step")
    if jax.tree.structure(reset) != jax.tree.structure(step):
        raise ProtocolError(f"{what} has another tree structure from reset than from step")

"""Finds the function that makes an environment, makes one, and inspects it."""

import contextlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, no_type_check

import numpy as np

from ppo_mask.adapters._gymnasium import gymnasium
from ppo_mask.adapters.from_gymnasium._spaces import Leaf, counts_of, leaves_of, texts_in
from ppo_mask.adapters.from_gymnasium._stepper import (
    GIVEN,
    UnfitError,
    check_returned,
    describe_error,
    name_source,
)
from ppo_mask.envs.actions import Actions, NumActions
from ppo_mask.errors import RunError, warn

Mask = Callable[[Any], Any] | str | None
"""A function from an environment to its mask; the name of an entry of the info or the observation,
or of a method of the environment; or None."""
METHODS = (GIVEN, "action_masks", "valid_action_mask")
"""Methods of an environment that return its mask."""
_ENTRIES = ("action_mask", "valid_actions")
"""Entries of an info or of a Dict observation that are the mask."""
_STATISTICS = {"obs_rms": "normalize_observations", "return_rms": "normalize_rewards"}
"""Attributes of wrappers that normalize by running means, and the fields of PPO to use instead."""
_LOOKS_LIKE_A_MASK = re.compile(r"mask|legal|avail|allowed|valid(?!at)", re.IGNORECASE)


class Inspected(NamedTuple):
    """The properties of an environment or a vector that the adapter needs."""

    name: str
    space: Any
    start: Any
    action_shape: Any
    num_actions: NumActions
    leaves: list[Leaf]
    mask: tuple[str | None, Any]
    channels_first: bool | None
    render_modes: Sequence[str]


def with_mask(make: Callable[..., Any], mask: Mask) -> Callable[..., Any]:
    """If ``mask`` is a function, adds a method that calls it to each environment from ``make``."""
    if not callable(mask):
        return make

    @no_type_check  # So that workers need nothing of this library to unpickle it.
    def make_masked(*arguments: Any, **options: Any) -> Any:
        env = make(*arguments, **options)
        setattr(env, GIVEN, lambda: mask(env))
        return env

    return make_masked


def find_masks(env: Any, names: Sequence[str] = METHODS) -> Any:
    """Returns the name and the method of the first of ``names`` that ``env`` has, or None."""
    for name in names:
        try:
            method = env.get_wrapper_attr(name)
        except AttributeError:
            continue
        if not callable(method):
            raise UnfitError(f"{name} must be a method, which returns the mask")
        return name, method
    return None


def inspect_env(
    name: str, env: Any, prefix: str, find: Callable[..., Any], mask: Mask
) -> Inspected:
    """Inspects and closes an environment or a vector; ``prefix`` begins its spaces' names."""
    names = f"{prefix}observation_space", f"{prefix}action_space"
    space, actions = attempt(name, lambda: [getattr(env, name) for name in names])
    if not isinstance(actions, gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete):
        kind = "Discrete or MultiDiscrete"
        raise ValueError(f"{name} has actions of {actions}; they must be {kind}")
    try:
        leaves = leaves_of(space)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if texts := texts_in(space):
        warn(f"{name}: {' and '.join(texts)} is text, and left out: networks take numbers")
    count = counts_of(actions)
    rows = [leaf.path for leaf in leaves if leaf.shape == (Actions.of(count).length,)]
    source = attempt(name, lambda: _find_source(name, env, find, mask, rows, actions.start))
    _warn_of_statistics(name, env)
    is_stack = isinstance(env, gymnasium.wrappers.FrameStackObservation)
    order = True if is_stack else None  # Frames are the first axis.
    close(name, env)
    modes = env.metadata.get("render_modes", ())
    return Inspected(name, space, actions.start, actions.shape, count, leaves, source, order, modes)


def _warn_of_statistics(name: str, layer: Any) -> None:
    """Warns of wrappers whose running means begin anew with each new environment."""
    for attribute, field in _STATISTICS.items():
        if hasattr(layer, attribute) and getattr(layer, "update_running_mean", True):
            warn(
                f"{name}: the running means of {type(layer).__name__} begin anew in evaluations "
                "and resumed runs, where the policy would see other numbers: leave it out, and use "
                f"{field} of pm.PPO (--{field.replace('_', '-')})"
            )
    if isinstance(layer, gymnasium.Wrapper | gymnasium.vector.VectorWrapper):
        _warn_of_statistics(name, layer.env)
    elif isinstance(layer, gymnasium.vector.SyncVectorEnv):
        _warn_of_statistics(name, layer.envs[0])


def _find_source(
    name: str, env: Any, find: Callable[..., Any], mask: Mask, rows: list[Any], action: Any
) -> tuple[str | None, Any]:
    """Finds where the mask is; without a mask, warns and names what looks like a mask.

    ``rows`` has the paths of the observation's arrays that are as long as a mask.
    """
    is_named = isinstance(mask, str)
    if not is_named and (found := find(env)) is not None:
        return "method", found[0]
    _, info = check_returned(env.reset(seed=0), "reset")
    shown = {path[-1]: path for path in sorted(rows, key=len, reverse=True) if path}
    names = (mask,) if is_named else _ENTRIES
    for entry in names:
        if entry in info:
            return "info", entry
    for entry in names:  # Inside of a part, an entry may be another player's.
        if entry in shown and (is_named or len(shown[entry]) == 1):
            return "observation", shown[entry]
    if is_named and find(env, (mask,)) is not None:
        return "method", mask
    later: list[Any] = []  # What only the infos of steps have.
    with contextlib.suppress(Exception, SystemExit):
        result = env.step(np.full(env.action_space.shape, action)[()])
        later += [x for x in check_returned(result, "step")[-1] if x not in info]
    if is_named:
        raise UnfitError(
            f"has no entry or method {mask!r}, which should be the mask: info has {[*info]}; "
            f"observation has {[*shown]}; of steps alone, info has {later}"
        )
    sources = [*(("info", x) for x in info), *(("observation", shown[x]) for x in shown)]
    seen = [name_source(source) for source in sources]
    seen += [f"{name_source(('info', x))} (which reset must give, too)" for x in later]
    for attribute in dir(env.unwrapped):
        if not attribute.startswith("_"):
            value = inspect.getattr_static(env.unwrapped, attribute, None)
            seen.append(f"{attribute}()" if callable(value) else attribute)
    seen = [x for x in seen if _LOOKS_LIKE_A_MASK.search(x)]
    line = f"{name} has no masks under a known name: all its actions are always allowed"
    warn(line + (f"; if {' or '.join(seen)} is a mask, say so by mask=" if seen else ""))
    return None, None


def attempt(name: str, make: Callable[[], Any]) -> Any:
    """Calls a function; its error becomes a RunError of one line that begins with ``name``."""
    try:
        return make()
    except (Exception, SystemExit) as error:
        raise RunError((name or "the environment") + describe_error(error)) from error


def first_made(name: str, make: Callable[[], Any], kind: type) -> Any:
    """Makes an environment or a vector, to inspect it, and checks that it is one."""
    env = attempt(name, make)
    if not isinstance(env, kind):
        library = kind.__module__.partition(".")[0]
        line = f"what should make a {kind.__name__} of {library} made a {type(env).__name__}"
        if type(env).__module__.startswith("pettingzoo"):
            line += (
                "; ppo_mask.adapters.pettingzoo takes AEC games, and parallel_to_aec of "
                "pettingzoo.utils makes one of a ParallelEnv"
            )
        raise ValueError(line)
    return env


def close(name: str, env: Any) -> None:
    """Closes an environment or a vector; only warns if that fails."""
    try:
        attempt(name, env.close)
    except RunError as error:
        warn(str(error))


def find_maker(
    environment: Any, max_episode_steps: int | None, env_kwargs: Mapping[str, Any]
) -> tuple[Callable[[], Any], str]:
    """Finds a picklable function that makes an environment, and the environment's name."""
    from gymnasium.envs.registration import EnvSpec

    limit = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
    if isinstance(environment, gymnasium.Env):
        spec = environment.spec
        make = "the class" if spec is None else f"lambda: gymnasium.make({spec.id!r})"
        raise ValueError(
            f"one {type(environment.unwrapped).__name__} is not enough, for several run side by "
            f"side: give a function that makes one as you want it, such as {make}"
        )
    if isinstance(environment, str):
        try:
            # Imports the id's module here; workers get the spec, not the id.
            module, _, name = environment.rpartition(":")
            if module:
                __import__(module)
            environment = gymnasium.spec(name)
        except (ImportError, gymnasium.error.Error) as error:
            raise ValueError(f"there is no {environment!r} for gymnasium.make: {error}") from error
        except (Exception, SystemExit) as error:
            raise RunError(f"the module of {environment}{describe_error(error)}") from error
    if isinstance(environment, EnvSpec):
        return partial(gymnasium.make, environment, **limit, **env_kwargs), environment.id
    if not callable(environment):
        raise ValueError(
            f"an environment is an id, or a function that makes one; got {environment!r}"
        )
    name = getattr(environment, "__name__", "").replace("<lambda>", "")
    maker: Callable[..., Any] = environment
    made = partial(maker, **env_kwargs)
    if max_episode_steps is None:
        return made, name
    limit_made = gymnasium.wrappers.TimeLimit
    return lambda **options: limit_made(made(**options), max_episode_steps), name

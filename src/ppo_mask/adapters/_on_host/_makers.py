"""Finds the function that makes an environment, makes one, and inspects it."""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gymnasium.envs.registration import EnvSpec

from ppo_mask.adapters._gymnasium import gymnasium
from ppo_mask.adapters._on_host._spaces import counts_of, leaves_of, tree_of
from ppo_mask.adapters._on_host._stepper import (
    GIVEN,
    Layout,
    UnfitError,
    check_returned,
    describe_error,
    find_method,
)
from ppo_mask.adapters._on_host._vectors import find_method_of
from ppo_mask.envs.actions import Actions
from ppo_mask.errors import RunError, warn

Mask = Callable[[Any], Any] | str | None
"""A function from an environment to its mask; the name of an entry of the info or the observation,
or of a method of the environment; or None."""
_METHODS = (GIVEN, "action_masks", "valid_action_mask")
"""Methods of an environment that return its mask."""
_ENTRIES = ("action_mask", "valid_actions")
"""Entries of an info or of a Dict observation that are the mask."""
_STATISTICS = {"obs_rms": "normalize_observations", "return_rms": "normalize_rewards"}
"""Attributes of wrappers that normalize by running means, and the fields of PPO to use instead."""


def with_mask(make: Callable[..., Any], mask: Mask) -> Callable[..., Any]:
    """If ``mask`` is a function, adds a method that calls it to each environment from ``make``."""
    if not callable(mask):
        return make

    def make_masked(*arguments: Any, **options: Any) -> Any:
        env = make(*arguments, **options)
        setattr(env, GIVEN, lambda: mask(env))
        return env

    return make_masked


def inspect_env(name: str, env: Any, infos: tuple[str, ...], mask: Mask) -> tuple[Layout, Any, Any]:
    """Inspects and closes an environment or a vector.

    Returns:
        The layout; the tree of the observation's spaces; and whether images have their channels
        first, if known.
    """
    prefix = "single_" if isinstance(env, gymnasium.vector.VectorEnv) else ""
    names = f"{prefix}observation_space", f"{prefix}action_space"
    space, actions = attempt(name, lambda: [getattr(env, name) for name in names])
    kinds = gymnasium.spaces
    if not isinstance(actions, kinds.Discrete | kinds.MultiDiscrete | kinds.MultiBinary):
        kind = "Discrete, MultiDiscrete or MultiBinary"
        raise ValueError(f"{name} has actions of {actions}; they must be {kind}")
    tree, count = tree_of(name, space), counts_of(actions)
    leaves = attempt(name, lambda: leaves_of(tree))
    if not leaves:
        raise ValueError(f"{name}: its observation has no numbers")
    source = attempt(name, lambda: _find_source(name, env, mask))
    _warn_of_statistics(name, env)
    is_stack = isinstance(env, gymnasium.wrappers.FrameStackObservation)
    close(name, env)
    layout = Layout(
        name,
        count,
        Actions.of(count).length,
        Actions.of(count).starts,
        actions.shape,
        getattr(actions, "start", 0),
        leaves,
        source,
        infos,
        tuple(env.metadata.get("render_modes", ())),
    )
    return layout, tree, True if is_stack else None  # Frames are the first axis.


def _warn_of_statistics(name: str, layer: Any) -> None:
    """Warns of wrappers whose running means begin anew with each new environment."""
    for attribute, field in _STATISTICS.items():
        if hasattr(layer, attribute) and getattr(layer, "update_running_mean", True):
            warn(
                f"{name}: the running means of {type(layer).__name__} begin anew in evaluations "
                "and resumed runs, where the policy would see other numbers: leave it out, and use "
                f"{field} of pm.PPO (--{field.replace('_', '-')})"
            )
    if layer is not layer.unwrapped:
        _warn_of_statistics(name, layer.env)


def _find_source(name: str, env: Any, mask: Mask) -> tuple[str | None, str]:
    """Finds where the mask is (see ``Layout``); warns if there is none."""
    is_named = isinstance(mask, str)
    find = find_method_of if isinstance(env, gymnasium.vector.VectorEnv) else find_method
    if (found := find(env, ("part_mask",))) is not None:
        env.reset(seed=0)
        if found[1]((), 0) is not None:
            raise UnfitError(
                "its part_mask says that parts of an action depend on each other, which only "
                "environments in JAX may have: make each combination of the parts one action"
            )
    if not is_named and (found := find(env, _METHODS)) is not None:
        return "method", found[0]
    observation, info = check_returned(env.reset(seed=0), "reset")
    shown = observation if isinstance(observation, dict) else {}
    for entry in (mask,) if is_named else _ENTRIES:
        for kind, given in ("info", info), ("observation", shown):
            if entry in given:
                return kind, entry
    if is_named and find(env, (mask,)) is not None:
        return "method", mask
    if is_named:
        raise UnfitError(
            f"has no entry or method {mask!r}, which should be the mask: after reset, info has "
            f"{[*info]}; observation has {[*shown]}"
        )
    warn(
        f"{name} has no masks under a known name: all its actions are always allowed; if it has "
        "one under another name, say where by mask="
    )
    return None, ""


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
        wanted, made = (f"{x.__module__}.{x.__name__}" for x in (kind, type(env)))
        raise ValueError(f"what should make a {wanted} made a {made}")
    return env


def close(name: str, env: Any) -> None:
    """Closes an environment or a vector; only warns if that fails."""
    try:
        attempt(name, env.close)
    except RunError as error:
        warn(str(error))


def find_maker(
    environment: Any, max_episode_steps: int | None, env_kwargs: Mapping[str, Any]
) -> tuple[Callable[..., Any], str]:
    """Finds a picklable function that makes an environment, and the environment's name."""
    limit = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
    if isinstance(environment, str):
        environment = attempt(environment, partial(_spec_of, environment))
    if isinstance(environment, EnvSpec):
        return partial(gymnasium.make, environment, **limit, **env_kwargs), environment.id
    if not callable(environment):
        raise ValueError(
            "an environment is an id, or a function that makes one, for several run side by side; "
            f"got {environment!r}"
        )
    name = getattr(environment, "__name__", "").replace("<lambda>", "")
    made: Any = partial(environment, **env_kwargs)
    if max_episode_steps is None:
        return made, name
    limited = gymnasium.wrappers.TimeLimit
    return lambda **options: limited(made(**options), max_episode_steps), name


def _spec_of(name: str) -> Any:
    """Finds an id's spec, for workers, since the id may be registered in this process only."""
    module, _, name = name.rpartition(":")
    if module:
        importlib.import_module(module)
    return gymnasium.spec(name)

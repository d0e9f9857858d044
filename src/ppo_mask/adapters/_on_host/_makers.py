"""Finds the function that makes an environment, makes one, and inspects it."""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ppo_mask.adapters._gymnasium import EnvSpec, gymnasium
from ppo_mask.adapters._on_host._spaces import counts_of, leaves_of, tree_of
from ppo_mask.adapters._on_host._stepper import (
    GIVEN,
    Layout,
    UnfitError,
    check_returned,
    close_silently,
    describe_error,
    find_attribute,
)
from ppo_mask.envs.actions import Actions
from ppo_mask.errors import RunError, warn

Mask = Callable[[Any], Any] | str | None
"""A function from an environment to its mask; the name of an entry of the info or the observation,
or of a method of the environment; or None."""
_METHODS = (GIVEN, "action_masks", "valid_action_mask")
"""Methods of an environment that return its mask."""
_ENTRIES = ("action_mask", "valid_actions")
"""Entries of an info or of a Dict observation that are the mask."""
_STATISTICS = ("obs_rms", "return_rms")
"""Attributes of wrappers that normalize by running means."""


def with_mask(make: Callable[..., Any], mask: Mask) -> Callable[..., Any]:
    """If ``mask`` is a function, adds a method that calls it to each environment from ``make``."""
    if not callable(mask):
        return make

    def make_masked(*arguments: Any, **options: Any) -> Any:
        env = make(*arguments, **options)
        setattr(env, GIVEN, lambda: mask(env))
        return env

    return make_masked


def inspect_env(
    name: str, make: Callable[[], Any], infos: tuple[str, ...], mask: Mask
) -> tuple[Layout, Any, Any, Any]:
    """Makes an environment, inspects it and closes it.

    Returns:
        The layout; the tree of the observation's spaces; whether images are stacks of frames; and
        the environment's ``observation_sets``, if it has them.
    """
    env = attempt(name or "the environment", make)
    if not isinstance(env, gymnasium.Env):
        made = f"{type(env).__module__}.{type(env).__name__}"
        raise ValueError(f"what should make a gymnasium.Env made a {made}")
    name = name or env.metadata.get("name", type(env.unwrapped).__name__)
    space, actions = attempt(name, lambda: (env.observation_space, env.action_space))
    kinds = gymnasium.spaces
    if not isinstance(actions, kinds.Discrete | kinds.MultiDiscrete | kinds.MultiBinary):
        kind = "Discrete, MultiDiscrete or MultiBinary"
        raise ValueError(f"{name} has actions of {actions}; they must be {kind}")
    tree, count = tree_of(name, space), counts_of(actions)
    leaves = attempt(name, lambda: leaves_of(tree))
    if not leaves:
        raise ValueError(f"{name}: its observation has no numbers")
    source = attempt(name, lambda: _find_source(name, env, mask))
    statistics = find_attribute(env, _STATISTICS)
    updates = find_attribute(env, ("update_running_mean",))
    if statistics is not None and (updates is None or updates[1]):
        warn(
            f"{name}: running means ({statistics[0]}) begin anew in evaluations and resumed runs, "
            "where the policy would see other numbers: leave out what normalizes, and use "
            "--normalize-observations or --normalize-rewards (fields of pm.PPO)"
        )
    is_stack = isinstance(env, gymnasium.wrappers.FrameStackObservation)
    _, sets = find_attribute(env, ("observation_sets",)) or (None, None)
    sets = sets and tuple(map(tuple, sets))
    close_silently(env)
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
    return layout, tree, is_stack, sets


def _find_source(name: str, env: Any, mask: Mask) -> tuple[str | None, str]:
    """Finds where the mask is (see ``Layout``); warns if there is none."""
    is_named = isinstance(mask, str)
    if (found := find_attribute(env, ("part_mask",))) is not None:
        env.reset(seed=0)
        if found[1]((), 0) is not None:
            raise UnfitError(
                "its part_mask says that parts of an action depend on each other, which only "
                "environments in JAX may have: make each combination of the parts one action"
            )
    if not is_named and (found := find_attribute(env, _METHODS)) is not None:
        return "method", found[0]
    observation, info = check_returned(env.reset(seed=0), "reset")
    shown = observation if isinstance(observation, dict) else {}
    for entry in (mask,) if is_named else _ENTRIES:
        for kind, given in ("info", info), ("observation", shown):
            if entry in given:
                return kind, entry
    if is_named and find_attribute(env, (mask,)) is not None:
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
        raise RunError(name + describe_error(error)) from error


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

"""Finds the function that makes an environment, makes one, and inspects it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ppo_mask.adapters._gymnasium import gymnasium
from ppo_mask.adapters.from_gymnasium._stepper import check_returned, describe_error
from ppo_mask.errors import RunError, warn


def is_masked(masks: Any, env: Any) -> bool:
    """Whether an environment or a vector has masks: a method ``masks``, or masks in its infos."""
    return masks is not None or "action_mask" in check_returned(env.reset(seed=0), "reset")[1]


def attempt(name: str, make: Callable[[], Any]) -> Any:
    """Calls a function.

    Raises:
        RunError: the function raised an error; the message is one line that begins with ``name``.
    """
    try:
        return make()
    except (Exception, SystemExit) as error:
        raise RunError((name or "the environment") + describe_error(error)) from error


def first_made(name: str, make: Callable[[], Any], kind: type) -> Any:
    """Makes an environment or a vector, to inspect it.

    Raises:
        RunError: ``make`` raises an error.
        ValueError: ``make`` does not return an instance of ``kind``.
    """
    env = attempt(name, make)
    if not isinstance(env, kind):
        wanted = f"a {kind.__name__} of Gymnasium"
        raise ValueError(f"what should make {wanted} made a {type(env).__name__}")
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
    return lambda: gymnasium.wrappers.TimeLimit(made(), max_episode_steps), name

"""Tells mistakes of an environment from others when a program cannot be traced."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from ppo_mask.envs import AbstractEnv
from ppo_mask.envs._shapes import shapes_of
from ppo_mask.errors import short_tracebacks

if TYPE_CHECKING:
    Env: TypeAlias = AbstractEnv[Any]
else:
    Env = Any  # Checked by require_env, with errors that suggest a fix.

_OF_TRACING = TypeError, ValueError, LookupError, AttributeError, NameError


@contextmanager
def explained(env: AbstractEnv[Any]) -> Generator[None]:
    """Replaces a tracing error with one line, a RunError, if the environment breaks the protocol.

    Traces the environment once more, after an error. Other errors stay as they are.
    """
    with short_tracebacks():
        try:
            yield
        except _OF_TRACING as error:
            with suppress(*_OF_TRACING):  # A bug in reset or step, which has its own message.
                shapes_of(env)
            raise error

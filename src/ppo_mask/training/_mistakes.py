"""Tells mistakes of an environment from others when a program cannot be traced."""

from collections.abc import Generator
from contextlib import contextmanager, suppress

from ppo_mask.envs._shapes import Env, shapes_of
from ppo_mask.errors import short_tracebacks

_OF_TRACING = TypeError, ValueError, LookupError, AttributeError, NameError


@contextmanager
def explained(env: Env) -> Generator[None]:
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

"""Compiles the methods of environments that are called from Python."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from ppo_mask.envs._host import raise_failure
from ppo_mask.envs.actions import Actions
from ppo_mask.jax_tools import jit_inline, number_settings

Method = TypeVar("Method", bound=Callable[..., Any])


def jitted(method: Method) -> Method:
    """Compiles ``reset`` or ``step`` if its caller is not compiled, under the usual settings.

    There, it also raises the errors of environments outside of JAX.

    Actions become arrays first, or :func:`ppo_mask.jax_tools.jit_inline` would compile for each.
    """
    compiled, signature = jit_inline(method), inspect.signature(method)

    @wraps(method)
    @number_settings()
    def call(self: Any, *args: Any, **named: Any) -> Any:
        given = signature.bind(self, *args, **named).arguments
        if "action" in given:
            given["action"] = Actions.of(self.num_actions).convert(given["action"])
        return raise_failure(self, compiled(*given.values()))

    return cast(Method, call)

"""Run-time checks of types for a whole package, made only for what is called."""

import inspect
from collections.abc import Callable
from typing import Any

from beartype import beartype
from beartype.door import die_if_unbearable
from jaxtyping import install_import_hook

_COLLECTS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def check_types(package: str) -> None:
    """Has all functions of a package checked by jaxtyping and beartype, once it is imported."""
    install_import_hook(package, f"{__name__}.{when_called.__name__}")


def when_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """``beartype(function)``, without a checker of its own.

    beartype writes and compiles one for each function. That was a third of an import and a tenth
    of tracing a program, and most of a library's functions are never called in one process. The
    types are few: beartype's checkers of them are made when first needed, and kept.
    """
    code, hints = function.__code__, dict(function.__annotations__)
    if code.co_flags & _COLLECTS:
        return _beartype_when_called(function)
    hints = {name: hint for name, hint in hints.items() if hint is not Any}
    result_hint = hints.pop("return", Any)
    named = enumerate(code.co_varnames[: code.co_argcount])
    places = [(place, hints[name]) for place, name in named if name in hints]

    def check(*args: Any, **kwargs: Any) -> Any:
        given = [(args[place], hint) for place, hint in places if place < len(args)]
        given += [(value, hints[name]) for name, value in kwargs.items() if name in hints]
        for value, hint in given:
            die_if_unbearable(value, hint)
        result = function(*args, **kwargs)
        if result_hint is not Any:
            die_if_unbearable(result, result_hint)
        return result

    return check


def _beartype_when_called(function: Callable[..., Any]) -> Callable[..., Any]:
    checked: Callable[..., Any] | None = None

    def check(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked
        if checked is None:
            checked = beartype(function)
        return checked(*args, **kwargs)

    return check

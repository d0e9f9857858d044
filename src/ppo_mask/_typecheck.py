"""Run-time checks of types for a whole package, made only for what is called."""

import contextlib
import inspect
import io
import re
from collections.abc import Callable
from typing import Any

from beartype import beartype
from beartype.door import is_bearable
from jaxtyping import AnnotationError, TypeCheckError, install_import_hook, print_bindings

_COLLECTS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_SHOWN = 100  # characters of a value or a type, in an error


class WrongType(TypeCheckError, AnnotationError):
    """An argument or a result of another type than its annotation, in one line.

    An AnnotationError as well, for jaxtyping lets these pass as they are: what else a checker of
    types raises becomes a hundred lines, of all arguments and all annotations.
    """


def check_types(package: str, *, but: str | None = None) -> None:
    """Has all functions of a package checked by jaxtyping and beartype, once it is imported.

    Args:
        package: its name.
        but: the name of a package in it whose functions are not: small ones of plain Python, for
            which checking takes longer than what they do.
    """
    finder: Any = install_import_hook(package, f"{__name__}.{when_called.__name__}").hook  # pyright: ignore
    if but is not None:
        covers = finder.should_instrument
        finder.should_instrument = lambda name: (
            not f"{name}.".startswith(f"{but}.") and covers(name)
        )


def when_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """``beartype(function)``, without a checker of its own.

    beartype writes and compiles one for each function. That was a third of an import and a tenth
    of tracing a program, and most of a library's functions are never called in one process. The
    types are few: beartype's checkers of them are made when first needed, and kept.
    """
    code, hints = function.__code__, dict(function.__annotations__)
    where = function.__qualname__.removesuffix(".__init__")
    fixed, collects = code.co_argcount + code.co_kwonlyargcount, code.co_flags & _COLLECTS
    collected = code.co_varnames[fixed : fixed + collects.bit_count()]
    if any(hints.get(name, Any) is not Any for name in collected):
        return _beartype_when_called(function)
    hints = {name: hint for name, hint in hints.items() if hint is not Any}
    result_hint = hints.pop("return", Any)
    named = enumerate(code.co_varnames[: code.co_argcount])
    places = [(place, name, hints[name]) for place, name in named if name in hints]

    def check(*args: Any, **kwargs: Any) -> Any:
        given = [(name, args[place], hint) for place, name, hint in places if place < len(args)]
        given += [(name, value, hints[name]) for name, value in kwargs.items() if name in hints]
        for name, value, hint in given:
            if not _fits(value, hint):
                raise _wrong_type(where, f"parameter '{name}'", value, hint)
        result = function(*args, **kwargs)
        if result_hint is not Any and not _fits(result, result_hint):
            raise _wrong_type(where, "the result", result, result_hint)
        return result

    return check


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value has a type; an int will do for a float, as for other checkers."""
    return is_bearable(value, hint) or (type(value) is int and is_bearable(0.0, hint))


def _beartype_when_called(function: Callable[..., Any]) -> Callable[..., Any]:
    checked: Callable[..., Any] | None = None

    def check(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked
        if checked is None:
            checked = beartype(function)
        return checked(*args, **kwargs)

    return check


def _wrong_type(where: str, what: str, value: Any, hint: Any) -> WrongType:
    import equinox as eqx  # Only now: an import of the library loads nothing heavy.

    shown = value.__name__ if inspect.isfunction(value) else eqx.tree_pformat(value)
    text = hint.__name__ if isinstance(hint, type) else str(hint)
    wanted = re.sub(r"(?:\w+\.)+(?=[A-Za-z_])", "", text.replace("~", ""))
    wanted = wanted.replace("SupportsIndex", "int")  # Of Python or NumPy.
    instead = "; jax.random.key(0) makes one" if wanted == "Key[Array, '']" else ""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        print_bindings()
    axes = ", ".join(re.findall(r"^\S+=\S+$", printed.getvalue(), re.MULTILINE))
    axes = f" where {axes}" if axes else ""
    return WrongType(f"{where}: {what} is {_cut(shown)}, not {_cut(wanted)}{axes}{instead}")


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."

"""Run-time type checks for a whole package, built only for functions that are called."""

import contextlib
import inspect
import io
import re
from collections.abc import Callable
from typing import Any

from beartype.door import is_bearable
from jaxtyping import AnnotationError, TypeCheckError, install_import_hook, print_bindings

_SHOWN = 100  # the most characters of a value or a type in an error


class WrongType(TypeCheckError, AnnotationError):
    """A one-line error: an argument or a result does not have its annotated type.

    A subclass of AnnotationError, because jaxtyping re-raises such errors unchanged. To a type
    checker's other errors, jaxtyping adds a hundred lines about all arguments and annotations.
    """


def check_types(package: str, *, but: str | None = None) -> None:
    """Installs an import hook that has jaxtyping and beartype check a package's functions.

    Args:
        package: the package's name.
        but: the name of a subpackage to leave unchecked, because checking its small Python
            functions would take longer than running them.
    """
    finder: Any = install_import_hook(package, f"{__name__}.when_called").hook  # pyright: ignore
    if but is not None:
        covers = finder.should_instrument
        finder.should_instrument = lambda name: (
            not f"{name}.".startswith(f"{but}.") and covers(name)
        )


def when_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """Does what ``beartype(function)`` does, without compiling a checker for each function.

    What ``*args`` and ``**kwargs`` collect is not checked.

    A process calls few of a library's functions, but compiling a checker for each function took a
    third of the import time and a tenth of the tracing time. Here, beartype builds a checker for
    each type on first use, and caches the checker; there are fewer types than functions.
    """
    code, hints = function.__code__, dict(function.__annotations__)
    where, result_hint = function.__qualname__.removesuffix(".__init__"), hints.get("return", Any)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    hints = {name: hints[name] for name in names if hints.get(name, Any) is not Any}
    named = enumerate(names[: code.co_argcount])
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
    """Whether a value has a type; an int passes as a float, as in other type checkers."""
    return is_bearable(value, hint) or (type(value) is int and is_bearable(0.0, hint))


def _wrong_type(where: str, what: str, value: Any, hint: Any) -> WrongType:
    import equinox as eqx  # Imported late: importing the library stays fast.

    shown = value.__name__ if inspect.isfunction(value) else eqx.tree_pformat(value)
    text = hint.__name__ if isinstance(hint, type) else str(hint)
    wanted = re.sub(r"(?:\w+\.)+(?=[A-Za-z_])", "", text.replace("~", ""))
    wanted = wanted.replace("SupportsIndex", "int")  # A Python or NumPy int.
    instead = "; jax.random.key(0) makes one" if wanted == "Key[Array, '']" else ""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        print_bindings()
    axes = ", ".join(re.findall(r"^\S+=\S+$", printed.getvalue(), re.MULTILINE))
    axes = f" where {axes}" if axes else ""
    return WrongType(f"{where}: {what} is {_cut(shown)}, not {_cut(wanted)}{axes}{instead}")


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."

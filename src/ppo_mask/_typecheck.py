"""Run-time checks of types for a whole package, made only for what is called."""

from collections.abc import Callable
from typing import Any

from beartype import beartype
from jaxtyping import install_import_hook


def check_types(package: str) -> None:
    """Has all functions of a package checked by jaxtyping and beartype, once it is imported."""
    install_import_hook(package, f"{__name__}.{when_called.__name__}")


def when_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """``beartype(function)``, made by the first call.

    beartype writes and compiles a function for each one that it checks. That was a third of an
    import, and most of a library's functions are never called in one process.
    """
    checked: Callable[..., Any] | None = None

    def check(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked
        if checked is None:
            checked = beartype(function)
        return checked(*args, **kwargs)

    return check

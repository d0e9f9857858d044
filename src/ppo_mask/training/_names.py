"""Checks the names of custom metrics."""

from collections.abc import Collection, Iterable

_OF_EACH_LINE = ("step", "update")
PREFIXES = ("train/", "eval/", "seeds/", "self_play/")
"""Names of the library's own metrics begin with these prefixes, now and in future versions."""

_OF_STEPS = ("num_episodes", "mean_reward", "mean_episode_return", "mean_episode_length")
OF_TRAINING = (*_OF_STEPS, "max_entropy", "steps_per_second")
"""Names under "train/" that are not an algorithm's."""


def check_logged_names(
    names: Iterable[object], taken: Collection[str] = (), prefixes: tuple[str, ...] = ()
) -> None:
    """Checks that every log can hold metrics with these names, and that no name is reserved.

    Args:
        names: the names of metrics.
        taken: names that the library uses.
        prefixes: what the names that the library uses begin with.

    Raises:
        ValueError: a name is of another kind, or the library uses it; the message says which.
    """
    for name in names:
        if not isinstance(name, str) or not name.isprintable() or name != name.strip() or not name:
            _refuse(name, "a name is text of one line without spaces around it")
        if name in _OF_EACH_LINE or str(name).startswith("_"):
            _refuse(name, "step, update, and names that begin with _ are reserved for the logs")
        if name in taken or str(name).startswith(prefixes):
            under = f" and all under {' '.join(prefixes)}" if prefixes else ""
            _refuse(name, f"the library logs its own {', '.join(taken)}{under}")


def check_metric_names(names: Iterable[object]) -> None:
    """Checks that each :class:`Metric` has a name that no log of a run or an evaluation uses."""
    check_logged_names(names, _OF_STEPS, PREFIXES)  # Evaluations log every metric under "eval/".


def _refuse(name: object, reason: str) -> None:
    raise ValueError(f"a metric cannot be called {name!r}: {reason}; stats/... would do")

"""Checks the names of custom metrics."""

from collections.abc import Iterable

_OF_EACH_LINE = ("step", "update")
PREFIXES = ("train/", "eval/", "seeds/", "self_play/")
"""Names of the library's own metrics begin with these prefixes, now and in future versions."""

_OF_STEPS = ("num_episodes", "mean_reward", "mean_episode_return", "mean_episode_length")
_OF_TRAINING = ("max_entropy", "steps_per_second")


def check_logged_names(names: Iterable[object]) -> None:
    """Checks that every log can hold metrics with these names, and that no name is reserved."""
    for name in names:
        if not isinstance(name, str) or not name.isprintable() or name != name.strip() or not name:
            _refuse(name, "a name is text of one line without spaces around it")
        if name in _OF_EACH_LINE or str(name).startswith("_"):
            _refuse(name, "step, update, and names that begin with _ are reserved for the logs")


def check_metric_names(names: Iterable[object]) -> None:
    """Checks that each :class:`Metric` has a name that the library does not use.

    Raises:
        ValueError: the library uses one of the names; the message says which.
    """
    for name in names:
        check_logged_names([name])
        # Evaluations log every metric under "eval/".
        if str(name) in _OF_STEPS or str(name).startswith(PREFIXES):
            _refuse(
                name, f"the library logs {', '.join(_OF_STEPS)} and all under {' '.join(PREFIXES)}"
            )


def check_learned_names(names: Iterable[object]) -> None:
    """Checks that the metrics of an algorithm have names that are free under "train/"."""
    for name in names:
        check_logged_names([name])
        if name in (*_OF_STEPS, *_OF_TRAINING):
            _refuse(name, f"the library logs a train/{name} of its own")


def _refuse(name: object, reason: str) -> None:
    raise ValueError(f"a metric cannot be called {name!r}: {reason}; stats/... would do")

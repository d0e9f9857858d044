"""Which names custom metrics may have."""

import dataclasses
from collections.abc import Iterable

from ppo_mask.ppo import UpdateDiagnostics

_OF_EACH_LINE = ("step", "update")
PREFIXES = ("train/", "eval/", "seeds/")
"""The library's own metrics begin with these, future ones too."""

_OF_STEPS = ("num_episodes", "mean_reward", "mean_episode_return", "mean_episode_length")
_OF_TRAINING = ("max_entropy", "steps_per_second")


def check_logged_names(names: Iterable[object]) -> None:
    """Makes sure that every log can hold metrics of these names, and that they hide none of it.

    Raises:
        ValueError: one cannot be logged; the message names it.
    """
    for name in names:
        if not isinstance(name, str) or not name.isprintable() or name != name.strip() or not name:
            _refuse(name, "a name is text of one line without spaces around it")
        if name in _OF_EACH_LINE or str(name).startswith("_"):
            _refuse(name, "logs have step, update and names with _ in front of their own")


def check_metric_names(names: Iterable[object]) -> None:
    """Makes sure that :class:`Metric` of these names take no place of the library's own.

    Raises:
        ValueError: one does; the message names it.
    """
    for name in names:
        check_logged_names([name])
        # At evaluations every metric is under "eval/".
        if str(name) in _OF_STEPS or str(name).startswith(PREFIXES):
            _refuse(
                name, f"the library logs {', '.join(_OF_STEPS)} and all under {' '.join(PREFIXES)}"
            )


def check_loss_names(names: Iterable[object]) -> None:
    """Makes sure that metrics of a custom loss, which are under "train/", replace none there.

    Raises:
        ValueError: one does; the message names it.
    """
    own = {field.name for field in dataclasses.fields(UpdateDiagnostics)}
    for name in names:
        check_logged_names([name])
        if name in own.union(_OF_STEPS, _OF_TRAINING):
            _refuse(name, f"the library has a train/{name} beside the loss's")


def _refuse(name: object, reason: str) -> None:
    raise ValueError(f"a metric cannot be called {name!r}: {reason}; stats/... would do")

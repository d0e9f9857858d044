"""Warns about a run that learns badly, and gives advice."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import final

from ppo_mask.errors import warn
from ppo_mask.training import Callback, LogRecord, Run

# A metric has recovered after this many good lines, so a metric that wavers gets one warning.
_RECOVERED_AFTER = 3


@dataclasses.dataclass(frozen=True)
class Check:
    """A condition to test on every log line, and a warning.

    Attributes:
        needs: the metrics to check; ``first/NAME`` is the metric ``NAME`` on its first log line.
        is_bad: tells from the metrics' values whether the log line is bad.
        patience: the number of consecutive bad log lines before the warning.
        message: the problem and a remedy in one line, as a format string for the metrics' values.
    """

    needs: tuple[str, ...]
    is_bad: Callable[..., bool]
    patience: int
    message: str


CHECKS = (
    Check(
        ("train/entropy", "train/max_entropy"),
        lambda entropy, possible: entropy < 0.1 * possible,
        1,
        "entropy {0:.3g} is under 10% of the {1:.3g} that the masks leave possible: the policy has "
        "all but stopped exploring; raise ent_coef (0.1 and more), or lower the learning rate",
    ),
    Check(
        ("train/entropy", "train/max_entropy"),
        lambda entropy, possible: entropy > 0.85 * possible > 0,
        30,
        "entropy has been over 85% of what the masks leave possible for 30 log lines (now {0:.3g} "
        "of {1:.3g}): the policy stays close to random; lower ent_coef",
    ),
    Check(
        ("train/approx_kl",),
        lambda kl: kl > 0.06,
        1,
        "approx_kl {0:.3g} is over 0.06: the policy changes too much per update; halve the "
        "learning rate, or take fewer epochs",
    ),
    Check(
        ("train/clip_frac",),
        lambda fraction: fraction > 0.30,
        1,
        "clip_frac {0:.3g} is over 0.30: much of the data is clipped away; halve the learning "
        "rate, or take fewer epochs or minibatches",
    ),
    Check(
        ("train/explained_variance",),
        lambda explained: explained <= 0,
        5,
        "explained_variance has been 0 or less (now {0:.3g}) for five log lines: the value is no "
        "better than a constant; look at the size of the rewards (normalize them) and at vf_coef",
    ),
    Check(
        ("train/num_episodes",),
        lambda episodes: episodes == 0,
        10,
        "no episode has ended for 10 log lines, so there is no return to log; if nothing ends an "
        "episode, truncate it: --max-episode-steps in examples/train_gymnasium.py, pm.TimeLimit or "
        "GymnasiumEnv(max_episode_steps=...) in Python",
    ),
    Check(
        ("train/mean_episode_return", "first/train/mean_episode_return"),
        lambda now, first: math.isclose(now, first, rel_tol=1e-5),  # They are sums of float32.
        10,
        "mean_episode_return has been {0:.4g} on each of 10 log lines: nothing the policy does "
        "changes it; unless no return is better, reward steps toward the goal, or raise ent_coef",
    ),
)


@final
class HealthChecks(Callback):
    """Warns once when a metric looks unhealthy, and again only after the metric has recovered.

    A healthy run has ``approx_kl`` from 0.01 to 0.06, ``clip_frac`` under 0.3, and an entropy over
    1 with four or five allowed actions. Problems that stop a run, such as a loss that is not
    finite, raise :class:`~ppo_mask.training.TrainingError` instead.

    Args:
        report: called with the text of each warning; by default, prints to standard error.
        checks: the checks of each log line.
    """

    def __init__(
        self, report: Callable[[str], None] = warn, checks: tuple[Check, ...] = CHECKS
    ) -> None:
        self._report = report
        self._checks = [_Watch(check) for check in checks]
        self._first = dict[str, float]()

    def on_log(self, run: Run, record: LogRecord) -> None:
        for name, value in record.values.items():
            if f"first/{name}" not in self._first:
                self._first[f"first/{name}"] = value
                self._checks.append(_Watch(_finite(name)))
        values = self._first | record.values
        for watch in self._checks:
            if message := watch.look(values):
                self._report(f"update {record.update}: {message}")


def _finite(name: str) -> Check:
    text = name.replace("{", "{{").replace("}", "}}") + " is {0}: look at where it is computed"
    return Check((name,), lambda value: not math.isfinite(value), 1, text)


class _Watch:
    """A check, with counts of the latest consecutive bad and good log lines."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._bad_lines = 0
        self._good_lines = 0
        self._warned = False

    def look(self, values: Mapping[str, float]) -> str | None:
        """Returns the warning that this log line triggers, or None."""
        check = self._check
        if any(name not in values for name in check.needs):
            return None
        metrics = [values[name] for name in check.needs]
        if check.is_bad(*metrics):
            self._bad_lines, self._good_lines = self._bad_lines + 1, 0
        else:
            self._bad_lines, self._good_lines = 0, self._good_lines + 1
        if self._good_lines >= _RECOVERED_AFTER:
            self._warned = False
        if self._warned or self._bad_lines < check.patience:
            return None
        self._warned = True
        return check.message.format(*metrics)

"""A curriculum as a setting: phases with weights for starting points, read from YAML."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax.numpy as jnp

from ppo_mask.errors import RunError
from ppo_mask.runner._schema import Structured, did_you_mean, finite_number
from ppo_mask.training import Schedule


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of a run with constant weights.

    Attributes:
        until: the progress at which the phase ends.
        weights: the weights of starting points, by name; all other points have weight 0.
    """

    until: float
    weights: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Phases(Structured):
    """The phases of a run, as a setting: a YAML file, or the same lines in a ``--config`` file.

    Attributes:
        phases: the phases in order; the last phase ends at progress 1.
    """

    phases: tuple[Phase, ...]

    @classmethod
    def from_plain(cls, plain: object, called: str) -> "Phases":
        """See :class:`Structured`."""
        if not isinstance(plain, Sequence) or isinstance(plain, str) or not plain:
            raise RunError(f"{called} must be a list of phases, got {plain!r}")
        entries = cast(Sequence[Any], plain)
        last = len(entries)
        phases = tuple(
            _phase(entry, f"{called}, phase {n}", is_last=n == last)
            for n, entry in enumerate(entries, 1)
        )
        for n, (one, following) in enumerate(itertools.pairwise(phases), 2):
            if following.until <= one.until:
                raise RunError(
                    f"{called}, phase {n}: until must be more than {one.until:g}, where the phase "
                    f"before it ends, got {following.until:g}"
                )
        return cls(phases)

    def to_plain(self) -> list[dict[str, Any]]:
        """See :class:`Structured`."""
        return [{"until": each.until, "weights": dict(each.weights)} for each in self.phases]

    def schedule(self, starts: Sequence[str]) -> Schedule:
        """Makes a schedule with the weights in the order of ``starts``.

        Args:
            starts: the names of all starting points.

        Raises:
            RunError: a phase names an unknown starting point.
        """
        for n, phase in enumerate(self.phases, 1):
            for name in phase.weights:
                if name not in starts:
                    raise RunError(
                        f"curriculum, phase {n}: there is no starting point {name}"
                        f"{did_you_mean(name, starts)}; there are {', '.join(starts)}"
                    )
        return Schedule(
            weights=jnp.array(
                [[phase.weights.get(name, 0.0) for name in starts] for phase in self.phases],
                jnp.float32,
            ),
            until=jnp.array([phase.until for phase in self.phases[:-1]], jnp.float32),
        )


def _phase(entry: object, called: str, is_last: bool) -> Phase:
    if not isinstance(entry, Mapping):
        raise RunError(f"{called} must have 'until' and 'weights', got {entry!r}")
    fields = cast(Mapping[Any, Any], entry)
    for key in fields:
        if key not in ("until", "weights"):
            raise RunError(f"{called}: unknown key {key}; there are until and weights")
    if "weights" not in fields:
        raise RunError(f"{called} has no 'weights'")
    if "until" not in fields and not is_last:
        raise RunError(f"{called} has no 'until'; only the last phase may go without")
    until = finite_number(fields.get("until", 1.0), f"{called}: until")
    if not 0 < until <= 1:
        raise RunError(f"{called}: until must be more than 0 and at most 1, got {until:g}")
    if is_last and until != 1:
        raise RunError(f"{called} is the last one: until must be 1 or left out, got {until:g}")
    return Phase(until, _weights(fields["weights"], called))


def _weights(entry: object, called: str) -> dict[str, float]:
    if not isinstance(entry, Mapping):
        raise RunError(f"{called}: weights must be 'start: weight' pairs, got {entry!r}")
    weights: dict[str, float] = {}
    for name, raw in cast(Mapping[Any, Any], entry).items():
        weight = finite_number(raw, f"{called}: the weight of {name}")
        if weight < 0:
            raise RunError(f"{called}: the weight of {name} must be at least 0, got {raw}")
        weights[str(name)] = weight
    if not any(weights.values()):
        raise RunError(f"{called}: at least one weight must be more than 0")
    return weights

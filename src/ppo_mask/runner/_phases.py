"""Phases of a run: settings that change during the run, read from YAML."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Real

from ppo_mask.envs import AbstractEnv
from ppo_mask.errors import RunError
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks import Model
from ppo_mask.runner._reader import read_values
from ppo_mask.runner._schema import Structured, finite_number, settings
from ppo_mask.training import AbstractAlgorithm, AbstractCurriculum, Curriculum, Phases, Schedule
from ppo_mask.training._curriculum import as_curriculum

Tree = TypeVar("Tree")


@dataclasses.dataclass(frozen=True)
class PhaseSettings(Structured):
    """The phases of a run, as a setting: a YAML file, or the same lines in a ``--config`` file.

    Attributes:
        until: where each phase but the last ends: either all in environment steps, or all as shares
            of the run, at most 1.
        values: each phase's settings by name. Of two values, the setting moves linearly from the
            first to the second. A setting that a phase does not name has the same value as in a run
            without phases.
    """

    until: tuple[float, ...]
    values: tuple[Mapping[str, Any], ...]

    @classmethod
    def from_plain(cls, plain: object, called: str) -> "PhaseSettings":
        """See :class:`Structured`."""
        if not isinstance(plain, Sequence) or isinstance(plain, str) or not plain:
            raise RunError(f"{called} must be a list of phases, got {plain!r}")
        entries = cast(Sequence[Any], plain)
        until: list[float] = []
        values: list[Mapping[str, Any]] = []
        for n, entry in enumerate(entries, 1):
            phase = f"{called}, phase {n}"
            if not isinstance(entry, Mapping):
                raise RunError(f"{phase} must hold 'name: value' lines, got {entry!r}")
            own = dict(cast(Mapping[Any, Any], entry))
            if ("until" in own) == (n == len(entries)):
                does = "is the last one, which needs no" if "until" in own else "has no"
                raise RunError(f"{phase} {does} 'until'")
            if "until" in own:
                until.append(finite_number(own.pop("until"), f"{phase}: until"))
            values.append(own)
        for n, (before, end) in enumerate(itertools.pairwise([0.0, *until]), 1):
            if end <= before:
                raise RunError(
                    f"{called}, phase {n}: until must be more than {before:g}, got {end:g}"
                )
        if until and until[0] <= 1 < until[-1]:
            raise RunError(f"{called}: each until must be in steps, or each a share of the run")
        return cls(tuple(until), tuple(values))

    def to_plain(self) -> list[dict[str, Any]]:
        """See :class:`Structured`."""
        ends = [*({"until": int(end) if end > 1 else end} for end in self.until), {}]
        return [{**end, **own} for end, own in zip(ends, self.values, strict=True)]


def phase_values(config: Any) -> list[dict[str, tuple[Any, Any]]]:
    """Reads each phase's settings: by name, the values at the phase's start and end."""
    phases: PhaseSettings | None = config.run.phases
    if phases is None:
        return []
    known = settings(config)
    may_change = [name for name, each in known.items() if each.rules.phased]
    read: list[dict[str, tuple[Any, Any]]] = []
    for n, values in enumerate(phases.values, 1):
        phase = f"phases, phase {n}"
        first, last = (
            read_values(config, {name: _at_end(raw, end) for name, raw in values.items()}, phase)
            for end in (0, 1)
        )
        for name in first.keys() - may_change:
            raise RunError(f"{phase}: {name} cannot change; there are {', '.join(may_change)}")
        read.append({name: (first[name], last[name]) for name in first})
    for name in set(itertools.chain(*read)):
        own = known[name].value
        all_values = [x for phase in read for x in phase.get(name, (own, own))]
        if None in all_values and any(x is not None for x in all_values):
            raise RunError(f"phases: {name} must have a value in all phases, or in none")
    return read


def last_settings(config: Any) -> Any:
    """Returns the settings that a run ends with: those of the end of its last phase, if any."""
    for name, (_, value) in (phase_values(config) or [{}])[-1].items():
        group = settings(config)[name].group
        changed = dataclasses.replace(getattr(config, group), **{name: value})
        config = dataclasses.replace(config, **{group: changed})
    return config


def _at_end(raw: Any, end: int) -> Any:
    return cast(list[Any], raw)[end] if isinstance(raw, list) and len(raw) == 2 else raw


def phased_schedule(config: Any) -> Schedule | None:
    """Makes the function that sets an algorithm's numbers in each phase; None if there is none."""
    of_phases = _phases(config, "algorithm", lambda numbers: numbers)
    return None if of_phases is None else _PhasedSchedule(of_phases)


def phased_curriculum(make: Callable[[Any], Curriculum | None], config: Any) -> Curriculum | None:
    """Makes the curriculum from the environment's settings, which may differ between phases."""

    def of_phase(numbers: Mapping[str, Any]) -> AbstractCurriculum:
        return as_curriculum(make(dataclasses.replace(config.environment, **numbers)))

    of_phases = _phases(config, "environment", of_phase)
    return make(config.environment) if of_phases is None else _PhasedCurriculum(of_phases)


@final
class _PhasedSchedule(eqx.Module):
    phases: Phases[Mapping[str, ArrayTree]]

    def __call__(
        self, algorithm: AbstractAlgorithm, progress: Float[Array, ""]
    ) -> AbstractAlgorithm:
        return dataclasses.replace(algorithm, **self.phases(progress))


@final
class _PhasedCurriculum(AbstractCurriculum):
    """The memory is common to all phases."""

    phases: Phases[AbstractCurriculum]

    @property
    def _first(self) -> AbstractCurriculum:
        return self.phases(jnp.float32(0))

    def init(self, model: Model) -> ArrayTree:
        return self._first.init(model)

    def renew(self, memory: ArrayTree, model: Model, updates: Real[Array, ""]) -> ArrayTree:
        return self._first.renew(memory, model, updates)

    def __call__(
        self, env: AbstractEnv[Any], progress: Float[Array, ""], memory: ArrayTree
    ) -> AbstractEnv[Any]:
        return self.phases(progress)(env, progress, memory)

    def update(
        self, memory: ArrayTree, info: Mapping[str, Array], ended: Bool[Array, "steps envs"]
    ) -> ArrayTree:
        return self._first.update(memory, info, ended)


def _phases(
    config: Any, group: str, make: Callable[[Mapping[str, Any]], Tree]
) -> Phases[Tree] | None:
    """Makes a tree from a group's settings in each phase; None if phases change none of them."""
    read, known = phase_values(config), settings(config)
    names = {name for name in itertools.chain(*read) if known[name].group == group}
    if not names:
        return None

    def tree(phase: Mapping[str, tuple[Any, Any]], end: int) -> Tree:
        own = {name: known[name].value for name in names}
        values = own | {name: phase[name][end] for name in names & phase.keys()}
        is_number = {name: isinstance(value, (int, float)) for name, value in values.items()}
        # As arrays, so that no number makes a difference in structure, not even 0.
        return make({n: jnp.float32(x) if is_number[n] else x for n, x in values.items()})

    first, last = ([tree(phase, end) for phase in read] for end in (0, 1))
    numbers = [eqx.filter(x, eqx.is_inexact_array_like) for x in first + last]
    rest = [eqx.filter(x, eqx.is_inexact_array_like, inverse=True) for x in first + last]
    structures = [jax.tree.structure(each) for each in numbers]
    if structures != structures[:1] * len(structures) or not eqx.tree_equal(*rest):
        raise RunError(
            f"phases: {', '.join(sorted(names))} change more than numbers: the curriculum must be "
            "an equinox.Module that holds them as arrays"
        )

    def stacked(numbers: Sequence[Any]) -> Tree:
        stack = jax.tree.map(lambda *x: jnp.stack([jnp.float32(each) for each in x]), *numbers)
        return eqx.combine(stack, rest[0])

    phases: PhaseSettings = config.run.phases
    algorithm: AbstractAlgorithm = config.algorithm
    steps = algorithm.total_updates(config.run.total_timesteps) * algorithm.batch_size
    unit = steps if phases.until and phases.until[0] > 1 else 1
    until = jnp.array([*(end / unit for end in phases.until), 1.0], jnp.float32)
    return Phases(stacked(numbers[: len(first)]), stacked(numbers[len(first) :]), until)

"""Sums a run's metrics in the compiled loop from one log line to the next."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Scalar

from ppo_mask.acting import Transition
from ppo_mask.devices.sharding import device_put
from ppo_mask.envs import VectorTimeStep
from ppo_mask.envs.actions import Action, Actions, NumActions
from ppo_mask.errors import naming
from ppo_mask.jax_tools._parts import as_floats
from ppo_mask.networks import vmap_axes


class Metric(eqx.Module):
    """A custom metric: a number per step, and how to reduce the numbers of many steps to one.

    Example:
        >>> import ppo_mask as pm
        >>> share_won = pm.Metric(lambda action, info: info["won"], over="episodes")
        >>> first_action = pm.Metric(lambda action, info: action == 0)
        >>> of_task_0 = pm.Metric(
        ...     lambda action, info: info["episode_return"],
        ...     over="episodes",
        ...     where=lambda info: info["task"] == 0,
        ... )

    Attributes:
        value: a function of a step's action and info that returns a number or a boolean; traced and
            vmapped. A MultiDiscrete action has shape ``[parts]``. ``info`` also has the episode's
            "episode_return" and "episode_length" so far, unless the environment has such entries.
        over: all steps, or only each episode's last step.
        reduce: mean or maximum over these steps.
        where: a function of a step's info that says whether the step counts; None if all do.
    """

    value: Callable[[Action, dict[str, Array]], Array] = eqx.field(static=True)
    over: Literal["steps", "episodes"] = eqx.field(static=True, default="steps")
    reduce: Literal["mean", "max"] = eqx.field(static=True, default="mean")
    where: Callable[[dict[str, Array]], Array] | None = eqx.field(static=True, default=None)


class Layout(NamedTuple):
    """What a :class:`Sums` holds, by the names of a log line.

    Attributes:
        totals: a metric's name, and the count that its sum is divided by. Those of steps and
            episodes come first.
        maxima: a metric's name, and the count of what it is the maximum of.
        last: names of metrics of which the last value counts.
        prefix: that of the library's own metrics: "train" or "eval".
    """

    totals: tuple[tuple[str, str], ...]
    maxima: tuple[tuple[str, str], ...]
    last: tuple[str, ...]
    prefix: str

    @property
    def counts(self) -> tuple[str, ...]:
        """The names of the counts, in order."""
        used = [count for _, count in (*self.totals, *self.maxima) if count != "updates"]
        return (*dict.fromkeys(["steps", "episodes", *used]), "updates")

    @property
    def learned(self) -> list[str]:
        """The names of an algorithm's metrics, as the algorithm has them."""
        of_updates = [name for name, count in self.totals if count == "updates"]
        return [name.removeprefix(f"{self.prefix}/") for name in (*of_updates, *self.last)]


class Sums(eqx.Module):
    """Metrics of many steps and updates, packed into a few arrays.

    Attributes:
        layout: which entry is which metric's.
        totals: sums over the steps, over the episodes that ended at them, or over updates.
        maxima: maxima over steps or episodes; minus infinity without any.
        last: the values of the last update.
        counts: numbers of steps, of episodes that ended, of what else a metric counts, and of
            updates.
    """

    layout: Layout = eqx.field(static=True)
    totals: Float[Array, "*runs totals"]
    maxima: Float[Array, "*runs maxima"]
    last: Float[Array, "*runs last"]
    counts: Int[Array, "*runs counts"]

    @property
    def updates(self) -> int:
        """The number of updates, outside of compiled code; all seeds have the same."""
        return int(np.asarray(self.counts).flat[-1])


def no_steps(metrics: Mapping[str, Metric]) -> Sums:
    """Makes the sums of an evaluation before its first step.

    Args:
        metrics: custom metrics, by name.
    """
    return _empty(_layout(metrics, "eval"))


def no_updates(
    metrics: Mapping[str, Metric], learned: Iterable[str], logged_last: Iterable[str]
) -> Sums:
    """Makes the sums of a run before its first update.

    Args:
        metrics: custom metrics, by name.
        learned: the names of the algorithm's metrics.
        logged_last: those of which the last value counts.
    """
    layout, last = _layout(metrics, "train"), [name for name in learned if name in logged_last]
    sums = [(f"train/{name}", "updates") for name in learned if name not in last]
    totals = (*layout.totals, ("train/max_entropy", "steps"), *sums)
    return _empty(layout._replace(totals=totals, last=tuple(f"train/{name}" for name in last)))


def _layout(metrics: Mapping[str, Metric], prefix: str) -> Layout:
    def reduced_by(reduce: str) -> list[tuple[str, str]]:
        return [(name, _count(name, x)) for name, x in metrics.items() if x.reduce == reduce]

    own = (
        (f"{prefix}/mean_reward", "steps"),
        (f"{prefix}/mean_episode_return", "episodes"),
        (f"{prefix}/mean_episode_length", "episodes"),
    )
    return Layout((*own, *reduced_by("mean")), tuple(reduced_by("max")), (), prefix)


def _count(name: str, metric: Metric) -> str:
    return metric.over if metric.where is None else f"where {name}"


def with_episode(info: Mapping[str, Any], return_: Any, length: Any) -> dict[str, Any]:
    """Adds to a step's info what a metric may know of the episode: its return and length so far."""
    return {"episode_return": return_, "episode_length": length, **info}


def _empty(layout: Layout, *runs: int) -> Sums:
    def full(size: int, value: float, dtype: Any) -> Array:
        # By NumPy, which compiles nothing.
        return jnp.asarray(np.full((*runs, size), value, dtype))

    return Sums(
        layout,
        totals=full(len(layout.totals), 0, np.float32),
        maxima=full(len(layout.maxima), -np.inf, np.float32),
        last=full(len(layout.last), 0, np.float32),
        counts=full(len(layout.counts), 0, np.int32),
    )


def emptied(sums: Sums) -> Sums:
    """Makes the sums before the next log line, on the devices of the old ones."""
    # Otherwise the next chunk would compile again: a program is for its arguments' devices.
    fresh, committed = _empty(sums.layout, *sums.counts.shape[:-1]), sums.counts.committed
    return device_put(fresh, jax.tree.map(lambda x: x.sharding, sums)) if committed else fresh


def add_steps(
    sums: Sums,
    metrics: Mapping[str, Metric],
    action: Int[Array, "*batch_and_parts"],
    result: Transition | VectorTimeStep,
    counted: Bool[Array, "*batch"],
    more: Mapping[str, Float[Array, "*batch"]] | None = None,
) -> Sums:
    """Adds those steps of a batch that are ``counted``.

    Args:
        sums: the sums so far.
        metrics: custom metrics, by name.
        action: the actions taken.
        result: what came of them.
        counted: which of the steps count.
        more: further values of each step, by the names of a log line.
    """
    layout, ended = sums.layout, result.ended & counted
    where = {"steps": counted, "episodes": ended}
    so_far = result.episode_return, result.episode_length
    info = with_episode(result.info, *so_far)
    # Not reshaped to one axis: the environments' axis is split over devices.
    axes = tuple(range(1, counted.ndim + 1))

    def of_batch(name: str, function: Callable[..., Array], *args: Any) -> Array:
        with naming(f"metric {name} (of the info {', '.join(info)})"):
            numbers = vmap_axes(function, counted.ndim)(*args)
        wanted = f"metric {name} must give one number for a step; for all, it gives"
        return as_floats(numbers, counted.shape, wanted)

    own = (result.reward, *so_far)
    values = dict(zip([name for name, _ in layout.totals], own, strict=False))
    values |= {name: of_batch(name, x.value, action, info) for name, x in metrics.items()}
    values |= dict(more or {})
    for name, metric in metrics.items():
        if metric.where is not None:
            counts = of_batch(name, metric.where, info).astype(bool)
            where[_count(name, metric)] = where[metric.over] & counts

    def rows(entries: Iterable[tuple[str, str]], otherwise: float) -> Array:
        # One array for all: a kernel for each metric would take longer, and longer to compile.
        picked = [
            jnp.where(where[count], values[name].astype(jnp.float32), otherwise)
            for name, count in entries
        ]
        return jnp.stack(picked)

    of_steps = [entry for entry in layout.totals if entry[1] != "updates"]
    totals = sums.totals.at[: len(of_steps)].add(rows(of_steps, 0).sum(axis=axes))
    maxima = sums.maxima
    if layout.maxima:
        maxima = jnp.maximum(maxima, rows(layout.maxima, -jnp.inf).max(axis=axes))
    counts = jnp.stack([where[name] for name in layout.counts[:-1]])
    counts = sums.counts.at[:-1].add(counts.sum(axis=axes, dtype=jnp.int32))
    return Sums(layout, totals, maxima, sums.last, counts)


def add_update(
    sums: Sums,
    metrics: Mapping[str, Metric],
    transitions: Transition,
    learned: Mapping[str, Scalar],
    num_actions: NumActions,
) -> Sums:
    """Adds one update and its rollout.

    Args:
        sums: the sums so far.
        metrics: custom metrics, by name.
        transitions: the rollout.
        learned: the algorithm's metrics of the update.
        num_actions: the environment's number of actions.
    """
    decision, layout = transitions.decision, sums.layout
    everything = jnp.ones_like(transitions.terminated)
    more = {"train/max_entropy": Actions.of(num_actions).max_entropy(decision.action_mask)}
    sums = add_steps(sums, metrics, decision.action, transitions, everything, more)
    values = [jnp.float32(0), *(learned[name].astype(jnp.float32) for name in layout.learned)]
    added = jnp.stack(values)[1:]
    count = len(added) - len(layout.last)
    first = len(layout.totals) - count
    return Sums(
        layout,
        totals=sums.totals.at[first:].add(added[:count]),
        maxima=sums.maxima,
        last=added[count:],
        counts=sums.counts.at[-1].add(1),
    )


def summarize(sums: Any) -> dict[str, float]:
    """Computes a log line: means, maxima and last values, as plain numbers.

    A metric without data, such as a mean over episodes if none ended, is left out.
    """
    sums = jax.device_get(sums)
    layout = sums.layout
    counts = dict(zip(layout.counts, map(int, sums.counts), strict=True))
    totals = zip(layout.totals, sums.totals, strict=True)
    maxima = zip(layout.maxima, sums.maxima, strict=True)
    return {
        f"{layout.prefix}/num_episodes": float(counts["episodes"]),
        **{name: float(x) / counts[count] for (name, count), x in totals if counts[count]},
        **{name: float(x) for (name, count), x in maxima if counts[count]},
        **{name: float(x) for name, x in zip(layout.last, sums.last, strict=True)},
    }

"""Sums a run's metrics in the compiled loop from one log line to the next."""

from collections.abc import Callable, Mapping
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ppo_mask.envs import VectorTimeStep
from ppo_mask.envs.actions import Action, NumActions, count_allowed
from ppo_mask.ppo import Transition, UpdateDiagnostics


class Metric(eqx.Module):
    """A custom metric: a number per step, and how to reduce the numbers of many steps to one.

    Example:
        >>> import ppo_mask as pm
        >>> share_won = pm.Metric(lambda action, info: info["won"], over="episodes")
        >>> first_action = pm.Metric(lambda action, info: action == 0)

    Attributes:
        value: a function of a step's action and info that returns a number or a boolean; traced and
            vmapped. A MultiDiscrete action has shape ``[parts]``.
        over: all steps, or only each episode's last step.
        reduce: mean or maximum over these steps.
    """

    value: Callable[[Action, dict[str, Array]], Array] = eqx.field(static=True)
    over: Literal["steps", "episodes"] = eqx.field(static=True, default="steps")
    reduce: Literal["mean", "max"] = eqx.field(static=True, default="mean")


class StepTotals(eqx.Module):
    """Sums, counts and maxima over steps, and over the episodes that ended at these steps.

    Attributes:
        steps: number of steps.
        episodes: number of episodes that ended.
        reward: sum over the steps.
        episode_return: sum over the episodes.
        episode_length: sum over the episodes; a float32, since an int32 could overflow.
        metrics: a sum or a maximum for each :class:`Metric`.
    """

    steps: Int[Array, "*runs"]
    episodes: Int[Array, "*runs"]
    reward: Float[Array, "*runs"]
    episode_return: Float[Array, "*runs"]
    episode_length: Float[Array, "*runs"]
    metrics: dict[str, Float[Array, "*runs"]]


class MetricTotals(eqx.Module):
    """Sums since the last log line.

    Attributes:
        steps: sums over the steps taken.
        updates: number of updates.
        diagnostics: each metric's mean over an update's gradient steps, summed over the updates;
            but ``lr`` is the value at the last gradient step.
        max_entropy: largest possible entropy under the masks, summed over the updates. In an
            update, the largest entropy is the mean over steps of log n, where n actions are
            allowed; if MultiDiscrete, log n is summed over the parts.
    """

    steps: StepTotals
    updates: Int[Array, "*runs"]
    diagnostics: UpdateDiagnostics
    max_entropy: Float[Array, "*runs"]


def empty_step_totals(metrics: Mapping[str, Metric]) -> StepTotals:
    """Makes the totals before the first step."""
    start = {"mean": 0, "max": -jnp.inf}
    return StepTotals(
        steps=jnp.int32(0),
        episodes=jnp.int32(0),
        reward=jnp.float32(0),
        episode_return=jnp.float32(0),
        episode_length=jnp.float32(0),
        metrics={name: jnp.float32(start[metric.reduce]) for name, metric in metrics.items()},
    )


def empty_totals(metrics: Mapping[str, Metric], diagnostics: UpdateDiagnostics) -> MetricTotals:
    """Makes the totals before the first update.

    Args:
        metrics: custom metrics, by name.
        diagnostics: the diagnostics of any update; only the tree's structure matters.
    """
    return MetricTotals(
        steps=empty_step_totals(metrics),
        updates=jnp.int32(0),
        diagnostics=jax.tree.map(lambda _: jnp.float32(0), diagnostics),
        max_entropy=jnp.float32(0),
    )


def add_steps(
    totals: StepTotals,
    metrics: Mapping[str, Metric],
    action: Int[Array, "*batch_and_parts"],
    result: Transition | VectorTimeStep,
    counted: Bool[Array, "*batch"],
) -> StepTotals:
    """Adds those steps of a batch to the totals that are ``counted``."""
    ended = result.ended & counted

    def total(x: Array, where: Array) -> Array:
        return jnp.where(where, x.astype(jnp.float32), 0).sum()

    def add(metric: Metric, old: Array) -> Array:
        value = metric.value
        for _ in counted.shape:
            value = jax.vmap(value)
        values = value(action, result.info).astype(jnp.float32)
        where = ended if metric.over == "episodes" else counted
        if metric.reduce == "mean":
            return old + total(values, where)
        return jnp.maximum(old, jnp.where(where, values, -jnp.inf).max())

    return StepTotals(
        steps=totals.steps + counted.sum(dtype=jnp.int32),
        episodes=totals.episodes + ended.sum(dtype=jnp.int32),
        reward=totals.reward + total(result.reward, counted),
        episode_return=totals.episode_return + total(result.episode_return, ended),
        episode_length=totals.episode_length + total(result.episode_length, ended),
        metrics={name: add(metric, totals.metrics[name]) for name, metric in metrics.items()},
    )


def add_update(
    totals: MetricTotals,
    metrics: Mapping[str, Metric],
    transitions: Transition,
    diagnostics: UpdateDiagnostics,
    num_actions: NumActions,
) -> MetricTotals:
    """Adds one update and its rollout to the totals.

    Args:
        totals: the totals so far.
        metrics: custom metrics, by name.
        transitions: the rollout.
        diagnostics: the diagnostics of the update.
        num_actions: the environment's number of actions.
    """
    decision = transitions.decision
    everything = jnp.ones_like(transitions.terminated)
    steps = jnp.maximum(diagnostics.gradient_steps, 1)

    def add(old: Array, new: Array) -> Array:
        new = new.astype(jnp.float32)
        return old + (new.sum() / steps if new.ndim else new)

    summed = jax.tree.map(add, totals.diagnostics, diagnostics)
    if diagnostics.lr is not None:
        summed = eqx.tree_at(lambda d: d.lr, summed, diagnostics.lr[-1])
    allowed = count_allowed(decision.action_mask, num_actions)
    possible = jnp.log(allowed.astype(jnp.float32))
    if isinstance(num_actions, tuple):
        possible = possible.sum(axis=-1)
    return MetricTotals(
        steps=add_steps(totals.steps, metrics, decision.action, transitions, everything),
        updates=totals.updates + 1,
        diagnostics=summed,
        max_entropy=totals.max_entropy + possible.mean(),
    )


def summarize_steps(
    totals: StepTotals, metrics: Mapping[str, Metric], prefix: str
) -> dict[str, float]:
    """Computes means and maxima as plain numbers; the library's own metrics go under ``prefix``.

    A metric without data, such as a mean over episodes if none ended, is left out.
    """
    totals = jax.device_get(totals)
    counts = {"steps": float(totals.steps), "episodes": float(totals.episodes)}
    values: dict[str, float] = {f"{prefix}/num_episodes": counts["episodes"]}
    if counts["steps"]:
        values[f"{prefix}/mean_reward"] = float(totals.reward) / counts["steps"]
    if counts["episodes"]:
        episodes = counts["episodes"]
        values[f"{prefix}/mean_episode_return"] = float(totals.episode_return) / episodes
        values[f"{prefix}/mean_episode_length"] = float(totals.episode_length) / episodes
    for name, metric in metrics.items():
        if count := counts[metric.over]:
            total = float(totals.metrics[name])
            values[name] = total / count if metric.reduce == "mean" else total
    return values


def summarize(totals: MetricTotals, metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Computes a log line's metrics as plain numbers; the library's own go under ``train/``."""
    totals = jax.device_get(totals)
    values = {
        f"train/{name}": float(total) / int(totals.updates)
        for name, total in totals.diagnostics.named.items()
    }
    if totals.diagnostics.lr is not None:
        values["train/lr"] = float(totals.diagnostics.lr)
    values["train/max_entropy"] = float(totals.max_entropy) / int(totals.updates)
    return values | summarize_steps(totals.steps, metrics, "train")

"""Evaluation during a run."""

from collections.abc import Mapping
from typing import Any, SupportsIndex, final

import jax
from jaxtyping import Array, Key

from ppo_mask.devices.sharding import addressable
from ppo_mask.envs import AbstractEnv
from ppo_mask.errors import RunError, check_at_least, first_line
from ppo_mask.training import (
    Callback,
    Metric,
    Progress,
    Run,
    TrainingError,
    TrainState,
    check_metric_names,
    evaluate,
)


@final
class Evaluator(Callback):
    """Evaluates the greedy policy every so often, in separate environments, and logs the result.

    Comes before the callback that saves, which scores checkpoints by it. It uses one device; of
    several processes each does the same.

    Args:
        env: the environment.
        key: each evaluation folds the update into it, so that resuming changes none.
        every_updates: updates between evaluations.
        num_episodes: of an evaluation.
        max_steps: cuts an episode off. A greedy policy may run in circles, and all wait for the
            longest episode.
        metrics: custom metrics by name, logged under ``eval/``.

    Raises:
        ValueError: a number is below 1, or a metric has a name that the library uses.
    """

    def __init__(
        self,
        env: AbstractEnv[Any],
        key: Key[Array, ""],
        every_updates: SupportsIndex,
        num_episodes: SupportsIndex = 64,
        max_steps: SupportsIndex = 1000,
        metrics: Mapping[str, Metric] | None = None,
    ) -> None:
        self._env = env
        self._key = key
        self._every, self._num_episodes = int(every_updates), int(num_episodes)
        self._max_steps = int(max_steps)
        numbers = {"num_episodes": self._num_episodes, "max_steps": self._max_steps}
        check_at_least(1, every_updates=self._every, **numbers)
        self._metrics = dict(metrics or {})
        check_metric_names(self._metrics)

    def next_update(self, update: int) -> int | None:
        return (update // self._every + 1) * self._every

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        if run.update % self._every == 0:
            key = jax.random.fold_in(self._key, run.update)
            try:
                result = evaluate(
                    addressable(state.model),
                    self._env,
                    key,
                    self._num_episodes,
                    max_steps=self._max_steps,
                    metrics=self._metrics,
                )
            # Such as a mask that allows no action, or more episodes than there is memory for.
            except (RunError, ValueError, jax.errors.JaxRuntimeError) as error:
                raise TrainingError(
                    f"evaluation at update {run.update}: {first_line(error)}"
                ) from error
            run.log(result.values)

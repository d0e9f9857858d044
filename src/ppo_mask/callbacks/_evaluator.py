"""Evaluates the policy during a run."""

from collections.abc import Mapping
from typing import Any, SupportsIndex, final

import jax
from jaxtyping import Array, Key

from ppo_mask.devices.processes import reason_of_any
from ppo_mask.devices.sharding import addressable
from ppo_mask.envs import AbstractEnv
from ppo_mask.envs._host import host_env_in
from ppo_mask.errors import RunError, check_at_least, first_line
from ppo_mask.training import Callback, Metric, Progress, Run, TrainingError, TrainState, evaluate
from ppo_mask.training._names import check_metric_names


class _Cut(Exception):
    """Raised to end an evaluation early when the run is asked to stop."""


@final
class Evaluator(Callback):
    """Evaluates the greedy policy at intervals, in separate environments, and logs the result.

    Put the evaluator before the :class:`Saver`, which scores checkpoints by the result. An
    evaluation uses one device; if there are several processes, each runs the same evaluation. If
    the run is asked to stop, the evaluation ends early and logs nothing, and a resumed run does not
    repeat this evaluation.

    Args:
        env: the environment.
        key: the random key. Each evaluation folds the update's number into the key, so that
            resuming changes no result.
        every_updates: the number of updates between evaluations.
        num_episodes: the number of episodes in each evaluation.
        max_steps: truncates an episode after this many steps. A greedy policy may run in circles,
            and an evaluation lasts as long as its longest episode.
        metrics: custom metrics by name, logged under ``eval/``.
        num_envs: the number of parallel environments; None for the default of
            :func:`ppo_mask.evaluate`. For environments in Python, None means one environment per
            episode, up to the number of environments in training.

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
        num_envs: SupportsIndex | None = None,
    ) -> None:
        self._env = env
        self._key = key
        self._every, self._num_episodes = int(every_updates), int(num_episodes)
        self._max_steps = int(max_steps)
        self._num_envs = None if num_envs is None else int(num_envs)
        check_at_least(1, every_updates=self._every, num_envs=self._num_envs)
        check_at_least(1, num_episodes=self._num_episodes, max_steps=self._max_steps)
        self._metrics = dict(metrics or {})
        check_metric_names(self._metrics)

    def next_update(self, update: int) -> int | None:
        return (update // self._every + 1) * self._every

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        if run.update % self._every == 0:
            key = jax.random.fold_in(self._key, run.update)
            num_envs = self._num_envs
            if num_envs is None and host_env_in(self._env) is not None:
                num_envs = min(self._num_episodes, run.algorithm.num_envs)

            def agree(goes_on: bool) -> bool:
                if reason_of_any("an episode goes on" if goes_on else None) is None:
                    return False
                if reason_of_any(run.stop_reason) is not None:
                    raise _Cut
                return True

            try:
                result = evaluate(
                    addressable(state.model),
                    self._env,
                    key,
                    self._num_episodes,
                    max_steps=self._max_steps,
                    metrics=self._metrics,
                    num_envs=num_envs,
                    between=agree,
                )
            except _Cut:
                return
            # For example, a mask allows no action, or the episodes do not fit into memory.
            except (RunError, ValueError, jax.errors.JaxRuntimeError) as error:
                raise TrainingError(
                    f"evaluation at update {run.update}: {first_line(error)}"
                ) from error
            run.log(result.values)

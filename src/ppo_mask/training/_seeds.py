"""Several seeds in one compiled program: a state with one more axis.

A small network leaves an accelerator mostly idle, so a few runs together cost hardly more than one
run. Only several seeds show how well an algorithm solves a problem.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, final

import jax
import numpy as np

from ppo_mask.networks import Model
from ppo_mask.training._callback import Callback, LogRecord, Progress, Run
from ppo_mask.training._loop import closing, next_wish
from ppo_mask.training._state import TrainState


@final
class PerSeed(Callback):
    """Gives each seed callbacks of its own, as if the seed were a run alone.

    Other callbacks of a run of several seeds get the stacked state, and the means over the seeds.

    Args:
        callbacks: a list of callbacks for each seed.

    Example:
        >>> import equinox as eqx
        >>> import jax
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> trainer = pm.Trainer(env, pm.PPO(num_envs=4, num_steps=8))
        >>> @eqx.filter_jit
        ... @eqx.filter_vmap
        ... def begin(key):
        ...     model_key, init_key = jax.random.split(key)
        ...     return trainer.init(pm.network_for(env, key=model_key), init_key)
        >>> states = begin(jax.random.split(jax.random.key(0), 2))
        >>> logs = [pm.History(), pm.History()]
        >>> seeds = pm.training.PerSeed([[log] for log in logs])
        >>> states = trainer.train(states, 64, callbacks=[seeds], log_interval=1)
        >>> states.update.tolist(), [len(log.records) for log in logs]
        ([2, 2], [2, 2])
    """

    def __init__(self, callbacks: Sequence[Sequence[Callback]]) -> None:
        self._callbacks = [list(each) for each in callbacks]
        self._runs: list[Run] = []

    def next_update(self, update: int) -> int | None:
        return next_wish([each for own in self._callbacks for each in own], update)

    def on_start(self, run: Run, state: TrainState) -> None:
        """See :class:`Callback`.

        Raises:
            ValueError: there is not one list of callbacks for each seed.
        """
        lists, seeds = len(self._callbacks), state.update.size
        if lists != seeds or state.update.ndim != 1:
            raise ValueError(f"PerSeed has {lists} lists of callbacks, and there are {seeds} seeds")
        unlogged = run.start_update - run.logged_updates
        numbers = run.algorithm, run.start_update, run.total_updates
        self._runs = [Run(*numbers, own, unlogged, run) for own in self._callbacks]
        with ExitStack() as stack:
            for own in self._runs:
                stack.enter_context(own.holding_lines())
            for each, own, alone in self._each(run, state):
                each.on_start(own, alone)

    def on_log(self, run: Run, record: LogRecord) -> None:
        for own, values in zip(self._runs, record.of_seeds, strict=False):
            own.update = run.update
            own.log(values, record.partial)

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        for each, own, alone in self._each(run, state):
            each.on_chunk(own, alone, progress)

    def on_stop(self, run: Run, state: TrainState, reason: str) -> None:
        for each, own, alone in self._each(run, state):
            each.on_stop(own, alone, reason)

    def close(self) -> None:
        with closing([each for own in self._callbacks for each in own]):
            pass

    def _each(self, run: Run, state: TrainState) -> list[tuple[Callback, Run, TrainState]]:
        found: list[tuple[Callback, Run, TrainState]] = []
        for seed, (own, callbacks) in enumerate(zip(self._runs, self._callbacks, strict=True)):
            own.update, alone = run.update, select_seed(state, seed)
            found += [(each, own, alone) for each in callbacks]
        return found


def mean_line(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Averages each metric over the seeds that log the metric; with one line, returns that line.

    ``seeds/return_std`` is the population standard deviation of the mean return over the seeds.
    """
    if len(lines) == 1:
        return dict(lines[0])
    names = dict.fromkeys(name for line in lines for name in line)
    values = {name: [line[name] for line in lines if name in line] for name in names}
    means = {name: float(np.mean(of_seeds)) for name, of_seeds in values.items()}
    if returns := values.get("train/mean_episode_return"):
        means["seeds/return_std"] = float(np.std(returns))
    return means


def select_seed(states: Any, seed: int) -> Any:
    """Selects one seed from a tree whose arrays have a leading axis ``seeds``.

    Raises:
        IndexError: there is no such seed.
    """

    def select(x: Any) -> Any:
        if not isinstance(x, jax.Array | np.ndarray):
            return x
        if not -len(x) <= seed < len(x):  # JAX would take the nearest one.
            raise IndexError(f"there are {len(x)} seeds, numbered from 0, and no seed {seed}")
        return x[seed]

    return jax.tree.map(select, states)


def model_of_one_seed(state: TrainState) -> Model:
    """Returns the model of a state of one seed, or of the first seed of several."""
    return select_seed(state.model, 0) if state.update.ndim else state.model

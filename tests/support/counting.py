"""A trainer that only counts, and a program of it: for tests of runs, which need nothing learned.

It compiles no updates, and runs the real loop with the real callbacks, logs and checkpoints.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from corridor import DEFAULTS as CORRIDOR, Corridor
from ppo_mask.checkpoints import RunFolder
from ppo_mask.envs import VectorState
from ppo_mask.networks import AbstractActorCritic, MaskedCategorical
from ppo_mask.ppo import LearnerState, PPOConfig, RolloutState, UpdateDiagnostics
from ppo_mask.runner import RunConfig, Task, _main, main, setting
from ppo_mask.training import AbstractTrainer, Progress, Run, TrainState, empty_totals, run_loop


class Bias(AbstractActorCritic):
    """A network that does not look."""

    logits: jax.Array

    def __init__(self, num_actions: int, *, key: Any) -> None:
        # Sampling them would be what most of a short run compiles.
        self.logits = np.linspace(0.1, 0.9, num_actions, dtype=np.float32) * (
            jax.random.key_data(key)[-1] / np.float32(2**32)
        )

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return {"num_actions": len(self.logits)}

    def __call__(self, observation: Any, action_mask: Any) -> Any:
        return MaskedCategorical(self.logits, action_mask), self.logits.sum()


class CountingTrainer(AbstractTrainer):
    """Each update counts, and mixes the network's numbers: they depend on every update so far."""

    config: PPOConfig

    def __init__(self, env: Any, config: PPOConfig, **others: Any) -> None:
        self.config = config

    def init(self, model: AbstractActorCritic, key: jax.Array) -> TrainState:
        zero, count = (jnp.asarray(np.zeros(1, dtype)) for dtype in (np.float32, np.int32))
        mask = jnp.asarray(np.ones((1, 3), bool))
        rollout = RolloutState(VectorState((), zero, count), zero, mask, ())
        learner = LearnerState(model, (), rollout, key, count[0], None)
        totals = empty_totals({}, UpdateDiagnostics.zeros())
        # A checkpoint takes a millisecond and more for each array.
        totals = eqx.tree_at(lambda totals: (totals.steps, totals.diagnostics), totals, ((), ()))
        return TrainState(learner, totals, memory=zero)

    def train(
        self,
        state: TrainState,
        total_timesteps: int,
        *,
        callbacks: Sequence[pm.Callback] = (),
        log_interval: int = 10,
        debug_nans: bool = False,
    ) -> TrainState:
        updates = self.config.total_updates(total_timesteps)
        unlogged = int(state.totals.updates)
        run = Run(self.config, int(state.update), updates, callbacks, unlogged)

        def log(state: TrainState, steps_per_second: float, partial: bool) -> TrainState:
            mean = float(state.memory[0]) / int(state.totals.updates)
            values = {"mean_episode_return": mean, "total_loss": -mean}
            values |= {"lr": self.config.learning_rate, "steps_per_second": steps_per_second}
            run.log({f"train/{name}": value for name, value in values.items()}, partial)
            empty = state.model.logits, state.learner.num_updates, np.zeros(1, np.float32), 0
            return state if partial else _with(state, *empty)

        return run_loop(run, state, callbacks, log_interval, _advance, log)


def _advance(state: TrainState, n: int) -> TrainState:
    numbers, total = np.asarray(state.model.logits), np.asarray(state.memory)
    done = int(state.learner.num_updates)
    for update in range(done + 1, done + n + 1):
        numbers = (np.float32(3.9) * numbers * (1 - numbers) + np.float32(update % 7 / 7)) % 1
        total = total + numbers.mean()
    return _with(state, numbers, done + n, total, int(state.totals.updates) + n)


def _with(state: TrainState, numbers: Any, updates: Any, total: Any, unlogged: int) -> TrainState:
    return eqx.tree_at(
        lambda s: (s.learner.model.logits, s.learner.num_updates, s.memory, s.totals.updates),
        state,
        (*map(jnp.asarray, (numbers, np.int32(updates), total, np.int32(unlogged))),),
    )


class Scores(pm.Callback):
    """Stands for an evaluation: any number of the network, such as its first."""

    def __init__(self, every: int) -> None:
        self._every = every

    def next_update(self, update: int) -> int | None:
        return (update // self._every + 1) * self._every

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        if run.update % self._every == 0:
            run.log({"eval/mean_episode_return": np.asarray(state.model.logits)[0]})


@dataclasses.dataclass(frozen=True)
class CountingSettings:
    """The corridor, and what stands for its evaluations."""

    length: int = setting(6, "cells", at_least=2)
    scored: int | None = setting(None, "updates between evaluations", changeable=True, at_least=1)


def _callbacks(config: RunConfig[CountingSettings]) -> list[pm.Callback]:
    every = config.environment.scored
    return [] if every is None else [Scores(every)]


TASK = Task(
    lambda settings: Corridor(settings.length),
    lambda env, _, key: Bias(env.num_actions, key=key),
    callbacks=_callbacks,
    trainer=CountingTrainer,
)
DEFAULTS = dataclasses.replace(CORRIDOR, environment=CountingSettings())


def task_of_seeds(patch: pytest.MonkeyPatch) -> Task[CountingSettings]:
    """A task whose seeds count one after the other, in place of training side by side."""

    def init(trainer: Any, make_model: Any, keys: Any) -> TrainState:
        pairs, one = map(jax.random.split, keys), CountingTrainer(None, trainer.config)
        states = [one.init(make_model(model_key), init_key) for model_key, init_key in pairs]
        return jax.tree.map(lambda *each: jnp.stack(each), *states)

    def train(trainer: Any, states: Any, total: int, *, callbacks: Any, of_all: Any, **more: Any):
        for n, own in enumerate(callbacks):
            state = jax.tree.map(lambda x: x[n], states)  # noqa: B023
            trainer = CountingTrainer(None, trainer.config)
            trainer.train(state, total, callbacks=[*own, *of_all], **more)

    patch.setattr(_main, "init_seeds", init)
    patch.setattr(_main, "train_seeds", train)
    return dataclasses.replace(TASK, trainer=pm.Trainer)


STEPS_PER_UPDATE = CORRIDOR.ppo.batch_size


def flags(parent: Path, updates: int, *more: str) -> list[str]:
    """Of a run of so many updates, in a folder of that folder."""
    total = str(updates * STEPS_PER_UPDATE)
    return ["--checkpoint-dir", str(parent), "--total-timesteps", total, *more]


def train(parent: Path, updates: int, *more: str) -> RunFolder:
    """A run called "run" from its command line, new or resumed."""
    named = () if "--resume" in more else ("--run-name", "run")
    assert main(TASK, DEFAULTS, flags(parent, updates, *named, *more)) == 0
    return RunFolder(parent / "run")


if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS))

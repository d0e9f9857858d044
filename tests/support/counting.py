"""An algorithm that only counts, and a program of it: for tests of runs, which learn nothing.

What it compiles is small; the trainer, the callbacks, logs and checkpoints are the real ones.
"""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ppo_mask as pm
from corridor import DEFAULTS as CORRIDOR, Corridor
from ppo_mask.checkpoints import RunDir
from ppo_mask.networks import AbstractActorCritic, MaskedCategorical
from ppo_mask.ppo import PPO
from ppo_mask.runner import RunConfig, Task, main, setting
from ppo_mask.training import At, Progress, Run, TrainState


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


class Steps(Corridor):
    """A corridor whose last action ends the episode; the reward is the action's number."""

    def step(self, key: Any, state: Any, action: Any) -> Any:
        _, timestep = self.reset(key)
        changed: Any = {"reward": jnp.float32(action), "terminated": action == 2}
        changed |= {"action_mask": timestep.action_mask | (action == 2)}
        return state, dataclasses.replace(timestep, **changed)


class Counting(PPO):  # pyright: ignore[reportGeneralTypeIssues]
    """PPO's settings, and an update that compiles little.

    It mixes the network's numbers, which then depend on every update so far.
    """

    def metric_names(self) -> tuple[str, ...]:
        return ("total_loss", "lr")

    def init(self, model: Any, rollout: Any, key: Any) -> Any:
        self.check(model, 1)
        return model, ()

    def learn(
        self, model: Any, own: Any, before: Any, transitions: Any, last_value: Any, at: At
    ) -> Any:
        logits = model.network.logits
        logits = (3.9 * logits * (1 - logits) + (at.update + 1) % 7 / 7) % 1
        model = eqx.tree_at(lambda m: m.network.logits, model, logits.astype(jnp.float32))
        return model, own, {"total_loss": -logits.mean(), "lr": self.learning_rate}


class Scores(pm.Callback):
    """Stands for an evaluation: any number of the network, such as its first."""

    def __init__(self, every: int) -> None:
        self._every = every

    def next_update(self, update: int) -> int | None:
        return (update // self._every + 1) * self._every

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        if run.update % self._every == 0:
            run.log({"eval/mean_episode_return": np.asarray(state.model.network.logits)[0]})


@dataclasses.dataclass(frozen=True)
class CountingSettings:
    """The corridor, and what stands for its evaluations."""

    length: int = setting(6, "cells", at_least=2)
    scored: int | None = setting(None, "updates between evaluations", changeable=True, at_least=1)


def _callbacks(config: RunConfig[CountingSettings]) -> list[pm.Callback]:
    every = config.environment.scored
    return [] if every is None else [Scores(every)]


TASK = Task(
    lambda settings: Steps(settings.length),
    lambda env, _, key: Bias(env.num_actions, key=key),
    callbacks=_callbacks,
)
_SETTINGS = {x.name: getattr(CORRIDOR.algorithm, x.name) for x in dataclasses.fields(PPO)}
DEFAULTS = dataclasses.replace(
    CORRIDOR, environment=CountingSettings(), algorithm=Counting(**_SETTINGS)
)


def a_trainer(**sizes: int) -> tuple[pm.Trainer, TrainState]:
    """One of the corridor, and its first state."""
    trainer = pm.Trainer(Steps(), Counting(**sizes))
    return trainer, trainer.init(Bias(3, key=jax.random.key(0)), jax.random.key(1))


STEPS_PER_UPDATE = CORRIDOR.algorithm.batch_size


def flags(parent: Path, updates: int, *more: str) -> list[str]:
    """Of a run of so many updates, in a folder of that folder."""
    total = str(updates * STEPS_PER_UPDATE)
    return ["--checkpoint-dir", str(parent), "--total-timesteps", total, *more]


def train(parent: Path, updates: int, *more: str) -> RunDir:
    """A run called "run" from its command line, new or resumed."""
    named = () if "--resume" in more else ("--run-name", "run")
    assert main(TASK, DEFAULTS, flags(parent, updates, *named, *more)) == 0
    return RunDir(parent / "run")


if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS))

"""Searches hyperparameters with Optuna, which stops trials early that do worse than others.

    pip install 'ppo-mask[search]'
    python examples/search_optuna.py --trials 30 --steps 500_000 --env hackmatrix

With ``--storage sqlite:///search.db`` the study is kept: a later search continues it, and any
number of processes may work on it at once. With ``--space FILE``, the values are those of a file
such as ``search_space.yaml``, which ``sweep.py`` reads, too.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optuna

from ppo_mask.errors import RunError
from ppo_mask.ppo import PPO
from ppo_mask.runner import enable_compilation_cache
from ppo_mask.training import Callback, LogRecord, Run, Trainer, TrainingError, TrainState
from search_space import ENVS, make, read_space


class Pruner(Callback):
    """Reports every log line to Optuna, and stops a run that Optuna prunes."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial
        self.score = float("-inf")

    def on_log(self, run: Run, record: LogRecord) -> None:
        """See :class:`ppo_mask.training.Callback`."""
        if (score := record.values.get("train/mean_episode_return")) is not None:
            self.score = score
            self.trial.report(score, step=record.update)
            if self.trial.should_prune():
                run.request_stop("pruned")

    def on_stop(self, run: Run, state: TrainState, reason: str) -> None:
        """See :class:`ppo_mask.training.Callback`."""
        if reason not in ("finished", "pruned"):  # Ctrl+C: start no more trials.
            self.trial.study.stop()


def suggest(trial: optuna.Trial, space: Path | None) -> dict[str, Any]:
    """Chooses a trial's settings, from the file's values or from ranges."""
    if space is not None:
        choices = read_space(space).items()
        return {name: trial.suggest_categorical(name, values) for name, values in choices}
    return {
        "learning_rate": trial.suggest_float("lr", 1e-5, 1e-2, log=True),
        "ent_coef": trial.suggest_float("ent_coef", 1e-3, 0.3, log=True),
        "gamma": 1 - trial.suggest_float("1 - gamma", 1e-3, 0.1, log=True),
    }


def objective(trial: optuna.Trial, flags: argparse.Namespace) -> float:
    """Trains once, and returns the last mean return."""
    env, new_model = make(flags.env)
    given: dict[str, Any] = {"num_envs": flags.num_envs, "num_steps": 32}
    for name, value in suggest(trial, flags.space).items():
        # Arrays are traced, so trials that differ in floats alone share one compiled program.
        given[name] = jnp.float32(value) if isinstance(value, float) else value
    config = PPO(**given)
    total_updates = -(-flags.steps // config.batch_size)
    log_interval = max(1, total_updates // 20)
    pruner = Pruner(trial)
    trainer = Trainer(env, config)
    state = trainer.init(new_model(jax.random.key(0)), jax.random.key(trial.number))
    state = trainer.train(
        state, total_updates * config.batch_size, callbacks=[pruner], log_interval=log_interval
    )
    if int(state.update) < total_updates:
        raise optuna.TrialPruned
    return pruner.score


def main(arguments: Sequence[str] | None = None) -> optuna.Study:
    """Searches, and prints the best trial."""
    parser = argparse.ArgumentParser(description="Searches hyperparameters.")
    parser.add_argument("--env", choices=ENVS, default=ENVS[0])
    parser.add_argument("--space", type=Path, help="a YAML file of lists")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100_000, help="environment steps of a trial")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--storage", help="a database that keeps the study for a later search")
    flags = parser.parse_args(arguments)
    enable_compilation_cache()
    study = optuna.create_study(
        study_name=f"ppo-mask-{flags.env}",
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=5),
        storage=flags.storage,
        load_if_exists=True,
    )
    study.optimize(lambda trial: objective(trial, flags), flags.trials, catch=(TrainingError,))
    finished = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    print(f"{len(finished)} of {len(study.trials)} trials ran to their end")
    if finished:
        print(f"best return {study.best_value:.3f} with {study.best_params}")
    return study


if __name__ == "__main__":
    try:
        done = main().get_trials(states=[optuna.trial.TrialState.COMPLETE])
    except RunError as problem:
        raise SystemExit(f"error: {problem}") from None
    raise SystemExit(0 if done else 1)

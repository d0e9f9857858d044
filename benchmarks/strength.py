"""Measures how strong an agent is over the seconds of its training.

    python benchmarks/strength.py --seconds 120 --seeds 3 --preset fast

passes the flags that are not its own to ``hackmatrix train``. At growing intervals it evaluates the
agent on fresh games with the original's rules and sampled actions. Seconds count training alone,
not compilation and not the evaluations.
"""

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import jax
from report import surroundings

from hackmatrix.actions import ACTION_NAMES, FIRST_PROGRAM, SIPHON_ACTION
from hackmatrix.task import DEFAULTS, EVALUATE_METRICS, METRICS, TASK, GameSettings, play_env
from ppo_mask.devices.sharding import addressable
from ppo_mask.runner import main as train
from ppo_mask.training import Callback, Progress, Run, TrainState, evaluate

STAGES = (2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0)
_PROGRAMS = [name for name in ACTION_NAMES[FIRST_PROGRAM:] if name != "UNDO"]
# The time of the first evaluation, in seconds; the ratio of each further time to the last.
_FIRST_LOOK, _LOOKS = 2.0, 1.25


class Strength(Callback):
    """Evaluates at growing intervals of training time, and stops the run when the time is up.

    Args:
        seconds: the training time.
        episodes: games of each evaluation.
    """

    def __init__(self, seconds: float, episodes: int):
        self.looks: list[dict[str, float]] = []
        self._seconds, self._episodes = seconds, episodes
        self._trained, self._next = 0.0, _FIRST_LOOK
        self._since = 0.0

    def on_start(self, run: Run, state: TrainState) -> None:
        """Evaluates once, to compile the evaluation."""
        self._look(run, state)
        self._since = time.perf_counter()

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        """Evaluates if it is time to."""
        self._trained += time.perf_counter() - self._since
        is_over = self._trained >= self._seconds or run.update == run.total_updates
        if self._trained >= self._next or is_over:
            self._look(run, state)
            self._next = max(self._trained, self._next * _LOOKS)
        if is_over:
            run.request_stop("measured")
        self._since = time.perf_counter()

    def _look(self, run: Run, state: TrainState) -> None:
        model = addressable(state.model)
        found = evaluate(
            model,
            play_env(GameSettings(), model),
            jax.random.key(run.update),
            self._episodes,
            greedy=False,
            max_steps=1000,
            metrics={**METRICS, **EVALUATE_METRICS},
        )

        def a_game(*names: str) -> float:
            shares = [found.values[f"eval/actions/{name}_frac"] for name in names]
            return sum(shares) * found.mean_length

        steps = run.update * run.algorithm.batch_size
        look = {
            "seconds": round(self._trained, 2),
            "steps": steps,
            "stage": found.values["eval/stats/mean_stage"],
            "return": found.mean_return,
            "won": found.values["eval/stats/win_rate"],
            "cut_off": float(found.truncated.mean()),
            "siphons": a_game(ACTION_NAMES[SIPHON_ACTION]),
            "programs": a_game(*_PROGRAMS),
        }
        self.looks.append(look)
        print("  ".join(f"{name} {value:.4g}" for name, value in look.items()), file=sys.stderr)


def reached(looks: Sequence[dict[str, float]], stage: float) -> dict[str, float] | None:
    """Seconds and steps at the first evaluation that reaches the mean final stage, or None."""
    for look in looks:
        if look["stage"] >= stage:
            return {name: look[name] for name in ("seconds", "steps")}
    return None


def measure_recipe(
    flags: Sequence[str], seeds: int, seconds: float, episodes: int
) -> list[list[dict[str, float]]]:
    """Trains one run for each seed, and returns the evaluations of each run."""
    runs: list[list[dict[str, float]]] = []
    for seed in range(1, seeds + 1):
        strength = Strength(seconds, episodes)
        task = dataclasses.replace(TASK, callbacks=lambda config, it=strength: [it])
        with tempfile.TemporaryDirectory() as folder:
            own = ["--seed", str(seed), "--checkpoint-dir", folder, "--no-tensorboard"]
            code = train(task, DEFAULTS, [*flags, *own])
        if code:
            raise SystemExit(code)
        runs.append(strength.looks)
    return runs


def table(runs: Sequence[Sequence[dict[str, float]]]) -> str:
    """Formats the runs as Markdown: when each seed reached each stage, and the final results."""
    rows = ["| mean final stage | seconds | steps |", "|---|---|---|"]
    for stage in STAGES:
        found = [reached(looks, stage) for looks in runs]
        if any(found):
            seconds = " / ".join("-" if x is None else f"{x['seconds']:.0f}" for x in found)
            steps = " / ".join("-" if x is None else f"{x['steps'] / 1e6:.1f}M" for x in found)
            rows.append(f"| {stage} | {seconds} | {steps} |")
    last = [looks[-1] for looks in runs]
    ends = {name: mean(look[name] for look in last) for name in last[0]}
    rows += [
        "",
        f"At the end, {ends['seconds']:.0f} s and {ends['steps'] / 1e6:.1f}M steps: stage "
        f"{ends['stage']:.2f}, return {ends['return']:.1f}, won {100 * ends['won']:.1f}%, "
        f"cut off {100 * ends['cut_off']:.1f}%, siphons {ends['siphons']:.2f} and programs "
        f"{ends['programs']:.2f} a game.",
    ]
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line, measures, and prints the table."""
    parser = argparse.ArgumentParser(description="How strong a recipe is after how many seconds.")
    parser.add_argument("--seconds", type=float, default=120, help="of training (default: 120)")
    parser.add_argument("--seeds", type=int, default=3, help="1 to so many (default: 3)")
    parser.add_argument("--episodes", type=int, default=512, help="at each look (default: 512)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all looks there")
    options, flags = parser.parse_known_args(arguments)
    runs = measure_recipe(flags, options.seeds, options.seconds, options.episodes)
    if options.json:
        found: dict[str, Any] = {"flags": flags, **surroundings(), "runs": runs}
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(runs))


if __name__ == "__main__":
    main()

"""What search before acting brings a policy, and what it costs.

    python benchmarks/search.py champion --searches 0 8 32 8x4 32:all --episodes 256
    python benchmarks/search.py RUN --program examples/train_elsewhere.py --searches 0 32

Each word of ``--searches`` is a number of simulations: in a world, times worlds; with ``:all``, the
search sees all. 0 is without search. A row has means over episodes with 95% intervals, and how long
a move took: ``--envs`` episodes together, without compiling.
"""

import argparse
import importlib
import itertools
import math
import runpy
import time
from typing import Any

import equinox as eqx
import jax

import ppo_mask as pm
from ppo_mask.envs._env import declared_info
from ppo_mask.errors import RunError
from ppo_mask.games import Seat
from ppo_mask.runner.commands import add_players, load_players, number


class SeesAll(pm.AbstractEnv[Any]):
    """An environment for a search that imagines nothing."""

    env: pm.AbstractEnv[Any]
    num_actions: int = eqx.field(static=True)

    @property
    def observation_info(self) -> Any:
        return declared_info(self.env)

    def reset(self, key: Any) -> Any:
        return self.env.reset(key)

    def step(self, key: Any, state: Any, action: Any) -> Any:
        return self.env.step(key, state, action)

    def step_and_reset(self, step_key: Any, reset_key: Any, state: Any, action: Any) -> Any:
        return self.env.step_and_reset(step_key, reset_key, state, action)

    def imagine(self, key: Any, state: Any) -> None:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--program", default="hackmatrix.task", help="a module, or a file")
    place = parser.parse_known_args()[0].program
    module = (
        runpy.run_path(place) if place.endswith(".py") else vars(importlib.import_module(place))
    )
    task, defaults = module["TASK"], module["DEFAULTS"]
    add_players(parser, task, several=False, max_steps=1000)
    parser.add_argument("--searches", nargs="+", required=True, metavar="NxM[:all]")
    parser.add_argument("--episodes", type=number(1), default=256)
    parser.add_argument("--envs", type=number(1), default=64)
    parser.add_argument(
        "--itself",
        action="store_true",
        help="in a game: play against the policy without search, which the search then knows",
    )
    options = parser.parse_args()
    for words in options.searches:
        sizes, _, knows = words.partition(":")
        simulations, _, worlds = sizes.partition("x")
        options.search, options.worlds = int(simulations) or None, int(worlds or 1)
        (run,) = load_players(options, task, defaults)
        env = SeesAll(run.env, run.env.num_actions) if knows else run.env
        if options.itself and isinstance(run.env, Seat):
            env = Seat(run.env.game, run.policy)

        def play(most_calls: float, run: Any = run, env: Any = env) -> Any:
            calls = itertools.count()
            return pm.evaluate(
                run.policy,
                env,
                jax.random.key(options.seed),
                options.episodes,
                greedy=run.plays_greedily(options.sample),
                num_envs=min(options.envs, options.episodes),
                max_steps=options.max_steps,
                metrics=task.metrics,
                search=run.search,
                between=lambda goes_on: goes_on and next(calls) < most_calls,
            )

        play(1)  # It compiles.
        begun = time.perf_counter()
        result = play(math.inf)
        seconds = time.perf_counter() - begun
        cells = [run.search.describe(env) if run.search else "no search"]
        for name, (mean, low, high) in result.estimates.items():
            cells.append(f"{name} {mean:.4g} [{low:.4g}, {high:.4g}]")
        cells.append(f"{1000 * seconds / result.episode_length.sum():.2f} ms a move")
        print(" | ".join([*cells, f"{seconds:.0f} s"]), flush=True)


if __name__ == "__main__":
    try:
        main()
    except RunError as error:
        raise SystemExit(f"error: {error}") from None

"""How often HackMatrix's champion wins with search before acting.

    python benchmarks/search.py --games 256 8 32 8x4 32:all

Each word is a number of simulations: in a world, times worlds; with ``:all``, the search sees all.
0 is without search. A row says how many games were won, with the 95% interval of Wilson, and how
long a move took: all games of a batch together, on what there is, without compiling.
"""

import argparse
import time
from typing import Any

import jax

import ppo_mask as pm
from hackmatrix.env import HackMatrix
from hackmatrix.task import DEFAULTS, METRICS, TASK, search_settings
from ppo_mask.runner import load_run
from ppo_mask.search import Search
from ppo_mask.training import estimate


class SeesAll(HackMatrix):
    """The game for a search that imagines nothing."""

    def imagine(self, key: Any, state: Any) -> None:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("searches", nargs="+", metavar="NxM[:all]")
    parser.add_argument("--games", type=int, default=256)
    parser.add_argument("--seed", type=int, default=20_26)
    options = parser.parse_args()
    compiling: list[float] = []

    def listen(event: str, seconds: float, **_: Any) -> None:
        compiling.extend([seconds] if event.startswith("/jax/core/compile/") else [])

    jax.monitoring.register_event_duration_secs_listener(listen)
    run = load_run(TASK, DEFAULTS, "champion")
    for words in options.searches:
        sizes, _, knows = words.partition(":")
        simulations, _, worlds = sizes.partition("x")
        kind = SeesAll if knows else HackMatrix
        env = kind(time_aware=True)
        settings, search = search_settings(run, DEFAULTS), None
        if int(simulations):
            search = Search(int(simulations), num_worlds=int(worlds or 1), **settings)
        play = [env, jax.random.key(options.seed), options.games]
        compiling.clear()
        begun = time.perf_counter()
        result = pm.evaluate(run.policy, *play, search=search, max_steps=1000, metrics=METRICS)
        seconds = time.perf_counter() - begun - sum(compiling)
        won = estimate(result.final_info["won"].astype(bool))
        cells = [words, f"{100 * won.mean:.1f}% [{100 * won.low:.1f}, {100 * won.high:.1f}]"]
        cells += [f"{result.final_info['stage'].mean():.2f}", f"{result.mean_length:.0f}"]
        cells += [f"{1000 * seconds / result.episode_length.sum():.2f} ms"]
        print(" | ".join([*cells, f"{options.games} games"]), flush=True)


if __name__ == "__main__":
    main()

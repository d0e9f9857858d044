"""How often policies reach a tile in 2048, with sampled actions.

    pip install 'ppo-mask[jumanji]'
    python benchmarks/results.py run game2048
    python benchmarks/tiles.py checkpoints/results/game2048/[0-9]

It prints the share of games, 256 for each run, in which a policy gets the tile or a larger one.
"""

import argparse
from pathlib import Path
from statistics import mean

import jax

import ppo_mask as pm
from ppo_mask.adapters.jumanji import JumanjiEnv

EPISODES, TILES = 256, (512, 1_024, 2_048, 4_096)


def shares(run: Path, seed: int) -> list[float]:
    """Returns the share of fresh games in which a run's policy gets each tile."""
    env, policy = JumanjiEnv("Game2048-v1"), pm.load_policy(run)
    found = pm.evaluate(policy, env, jax.random.key(seed), EPISODES, greedy=False)
    return [float((found.final_info["highest_tile"] >= tile).mean()) for tile in TILES]


def main() -> None:
    """Prints the mean of the runs."""
    parser = argparse.ArgumentParser(description="How often policies reach a tile in 2048.")
    parser.add_argument("runs", nargs="+", type=Path)
    each = [shares(run, 1000 + seed) for seed, run in enumerate(parser.parse_args().runs)]
    print(f"{len(each) * EPISODES} games")
    for tile, found in zip(TILES, zip(*each, strict=True), strict=True):
        print(f"{tile:>5,}  {mean(found):.1%}")


if __name__ == "__main__":
    main()

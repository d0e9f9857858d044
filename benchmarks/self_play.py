"""Self-play with a pool of opponents: a curve against random play, and ratings of five checkpoints.

python benchmarks/self_play.py connect_four --seed 0 --json connect_four.json --save FOLDER

Every half million steps, or --every so many, the policy plays 2,048 games against random play,
sampled and greedy.
Five policies, evenly spread over the run, then play each against each, with sampled actions.
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax

import ppo_mask as pm
from ppo_mask.adapters.pgx import PgxGame
from ppo_mask.checkpoints import save_policy
from ppo_mask.games import AbstractGame, Seat, random_opponent
from ppo_mask.networks import Model, UniformActorCritic
from ppo_mask.training import Callback, Estimate, Progress, Run, SelfPlay, TrainState, play_each

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from othello import Othello  # pyright: ignore[reportMissingImports] - of the examples
from poker import Leduc  # pyright: ignore[reportMissingImports] - of the examples

GAMES = {"connect_four": lambda: PgxGame("connect_four"), "othello": Othello, "leduc": Leduc}
GAMES_OF_EVALUATION, GAMES_OF_PAIR, CHECKPOINTS = 2_048, 4_096, 5
PPO = pm.PPO(
    num_envs=128, num_steps=64, learning_rate=1e-3, anneal_lr=True, gamma=1.0, ent_coef=0.03
)


class Curve(Callback):
    """Plays against random play on the way, and keeps the policies."""

    def __init__(self, env: Seat, seed: int, steps: int):
        self.env, self.key = env, jax.random.key(1_000_003 + seed)
        self.every = steps // PPO.batch_size
        self.points: list[dict[str, Any]] = []
        self.models: list[Model] = []

    def next_update(self, update: int) -> int:
        """Wants to see every point of the curve."""
        return (update // self.every + 1) * self.every

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        """Evaluates, sampled and greedy."""
        if progress.update % self.every and progress.update != progress.total_updates:
            return
        model = jax.tree.map(lambda x: x.copy() if isinstance(x, jax.Array) else x, state.model)
        self.models.append(model)
        point: dict[str, Any] = {"steps": progress.env_steps}
        for name, greedy in (("sampled", False), ("greedy", True)):
            key = jax.random.fold_in(self.key, progress.update)
            played = pm.evaluate(model, self.env, key, GAMES_OF_EVALUATION, greedy=greedy)
            point[name] = pm.training.estimate(played.final_info["outcome"])
        self.points.append(point)
        print(point, file=sys.stderr)


def train(
    game: AbstractGame[Any],
    ppo: pm.PPO,
    pool: tuple[int, int],
    steps: tuple[int, int],
    seed: int,
    width: int,
) -> tuple[Curve, float]:
    """Trains; returns the curve, and the steps a second without evaluations."""
    env = Seat(game, random_opponent)
    model_key, key = jax.random.split(jax.random.key(seed))
    model = pm.network_for(env, "mlp", hidden_dim=width, layer_norm=True, key=model_key)
    size, at_random = pool
    curriculum = SelfPlay(
        lambda env: env.opponent, 10, size, 0.6 * (size > 1), (random_opponent,) * at_random
    )
    trainer, curve = pm.Trainer(env, ppo, curriculum=curriculum), Curve(env, seed, steps[1])
    history = pm.History()
    trainer.train(trainer.init(model, key), steps[0], callbacks=[curve, history])
    speeds = sorted(line.values["train/steps_per_second"] for line in history.records)
    return curve, speeds[len(speeds) // 2]


def main() -> None:
    """Reads the command line, trains, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("game", choices=GAMES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=6_000_000)
    parser.add_argument("--every", type=int, default=500_000, help="steps between two evaluations")
    parser.add_argument("--pool", type=int, default=4, help="opponents side by side")
    parser.add_argument("--random", type=int, default=2, help="how many of them play at random")
    parser.add_argument("--hidden-dim", type=int, default=256)
    parser.add_argument("--ent-coef", type=float, default=PPO.ent_coef)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="keep the five policies there")
    options = parser.parse_args()
    game: Any = GAMES[options.game]()
    ppo, began = dataclasses.replace(PPO, ent_coef=options.ent_coef), time.perf_counter()
    pool, steps = (options.pool, options.random), (options.steps, options.every)
    curve, speed = train(game, ppo, pool, steps, options.seed, options.hidden_dim)
    seconds, last = time.perf_counter() - began, len(curve.models) - 1
    picked = [round(last * n / (CHECKPOINTS - 1)) for n in range(CHECKPOINTS)]
    players: dict[str, Any] = {"random": UniformActorCritic(game.num_actions)}
    for n in picked:
        players[f"{curve.points[n]['steps']:,}"] = curve.models[n]
        if options.save is not None:
            path = options.save / f"{options.game}_{curve.points[n]['steps']}"
            save_policy(curve.models[n], path)
    result = play_each(players, game, jax.random.key(options.seed), GAMES_OF_PAIR)
    for point in curve.points:
        print(f"{point['steps']:>10,}  sampled {told(point['sampled'])}  greedy", end=" ")
        print(told(point["greedy"]))
    for name, rating in result.elo.items():
        row = (f"{result.points(name, x).mean:.2f}" if x != name else "-" for x in players)
        print(f"{name:>10}  Elo {rating.mean:.0f} ({rating.low:.0f} to {rating.high:.0f})", *row)
    print(f"{seconds:.0f} s, {speed:,.0f} steps/s")
    if options.json is not None:
        content = {
            "game": options.game,
            "seed": options.seed,
            "pool": pool,
            "seconds": seconds,
            "steps_per_second": speed,
            "curve": [{k: told_all(v) for k, v in point.items()} for point in curve.points],
            "elo": {name: told_all(x) for name, x in result.elo.items()},
        }
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def told(x: Estimate) -> str:
    """Formats an estimate with its interval."""
    return f"{x.mean:.3f} ({x.low:.3f} to {x.high:.3f})"


def told_all(x: Any) -> Any:
    """Turns an estimate into a list."""
    return [x.mean, x.low, x.high] if isinstance(x, Estimate) else x


if __name__ == "__main__":
    main()

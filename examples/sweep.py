"""Sweeps over a grid of hyperparameters, with several seeds for each point, in few programs.

    python examples/sweep.py
    python examples/sweep.py --space my_space.yaml --num-trials 20 --env hackmatrix --steps 500_000

The floats of ``PPO`` may be JAX arrays, and ``Trainer.init`` and ``Trainer.run_updates`` are pure.
So ``jax.vmap`` trains one agent for each point and seed, with one compilation. Settings that
determine shapes or the program (``num_envs``, ``num_steps``, ``num_minibatches``, ``clip_value``)
need a compilation for each value. With ``--num-trials``, as many points are drawn from the grid.
"""

import argparse
import csv
import io
import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key
from rich.console import Console
from rich.table import Table

import ppo_mask as pm
from ppo_mask.errors import RunError
from ppo_mask.runner import enable_compilation_cache
from ppo_mask.runner.commands import number, refuse_existing, write
from search_space import ENVS, make, read_space

SPACE = Path(__file__).with_name("search_space.yaml")
Point = dict[str, Any]


def train_group(env_name: str, points: list[Point], seeds: int, steps: int) -> list[Point]:
    """Trains points that differ in floats alone, in one program; returns a row for each."""
    env, new_model = make(env_name)
    floats = [name for name, value in points[0].items() if isinstance(value, float)]
    fixed = {name: value for name, value in points[0].items() if name not in floats}
    fixed = {"num_envs": 8, "num_steps": 32, **fixed}
    updates = jnp.int32(-(-steps // (fixed["num_envs"] * fixed["num_steps"])))

    @eqx.filter_jit
    @eqx.filter_vmap
    def train(
        values: dict[str, Float[Array, ""]], key: Key[Array, ""]
    ) -> tuple[pm.Model, Bool[Array, ""]]:
        given: dict[str, Any] = {**fixed, **values}
        trainer = pm.Trainer(env, pm.PPO(**given))
        model_key, key = jax.random.split(key)
        state = trainer.init(new_model(model_key), key)
        state, health = trainer.run_updates(state, updates, updates)
        return state.model, health.good

    values = {name: jnp.repeat(jnp.array([p[name] for p in points]), seeds) for name in floats}
    keys = jnp.tile(jax.vmap(jax.random.key)(jnp.arange(seeds)), len(points))
    models, good = train(values, keys)
    returns = [
        pm.evaluate(pm.training.select_seed(models, n), env, jax.random.key(100), 32).mean_return
        for n in range(len(keys))
    ]
    rows = zip(points, np.reshape(returns, (-1, seeds)), np.reshape(good, (-1, seeds)), strict=True)
    return [
        {
            **point,
            "return": float(of_seeds.mean()),
            "worst_seed": float(of_seeds.min()),
            "best_seed": float(of_seeds.max()),
            "finite_seeds": int(finite.sum()),
        }
        for point, of_seeds, finite in rows
    ]


def main(arguments: Sequence[str] | None = None) -> list[Point]:
    """Trains and evaluates all points, prints the best first, and writes them to a file."""
    parser = argparse.ArgumentParser(description="Sweeps over a grid of hyperparameters.")
    parser.add_argument(
        "--space", type=Path, default=SPACE, help="a YAML file with lists of values"
    )
    parser.add_argument("--num-trials", type=number(1), help="points to draw; all by default")
    parser.add_argument("--seeds", type=number(1), default=3, help="agents for each point")
    parser.add_argument("--steps", type=number(1), default=7_680, help="environment steps of each")
    parser.add_argument("--env", choices=ENVS, default=ENVS[0])
    parser.add_argument("--out", default="sweep.csv", help="the file for the results")
    parser.add_argument("--force", action="store_true", help="replace the file")
    flags = parser.parse_args(arguments)
    refuse_existing([flags.out], flags.force)
    space = read_space(flags.space)
    points = [dict(zip(space, x, strict=True)) for x in itertools.product(*space.values())]
    if flags.num_trials is not None and flags.num_trials < len(points):
        points = random.Random(0).sample(points, flags.num_trials)
    groups: dict[str, list[Point]] = {}
    for point in points:
        fixed = {name: x for name, x in point.items() if not isinstance(x, float)}
        groups.setdefault(str(fixed), []).append(point)
    print(f"{len(points)} points of {flags.seeds} seeds; programs to compile: {len(groups)}")
    rows = [
        row
        for group in groups.values()
        for row in train_group(flags.env, group, flags.seeds, flags.steps)
    ]
    rows.sort(key=lambda row: row["return"], reverse=True)
    table, text = Table(*rows[0]), io.StringIO()
    for row in rows:
        table.add_row(*(f"{x:g}" if isinstance(x, float) else str(x) for x in row.values()))
    Console().print(table)
    writer = csv.DictWriter(text, [*rows[0]])
    writer.writeheader()
    writer.writerows(rows)
    write(flags.out, text.getvalue(), flags.force)
    return rows


if __name__ == "__main__":
    enable_compilation_cache()
    try:
        main()
    except RunError as problem:
        raise SystemExit(f"error: {problem}") from None

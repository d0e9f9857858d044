"""What a mask is worth: the same training with the environment's mask, and with none.

    pip install 'ppo-mask[jumanji,plot]'
    python benchmarks/masks.py run all         # or names of tasks; writes curves/masks.json
    python benchmarks/masks.py craftax RUNS    # takes the curves of runs of train_craftax.py
    python benchmarks/masks.py craftax_full RUNS
    python benchmarks/masks.py plot            # draws docs/images/masks.png, prints its figures

Without a mask all actions are allowed, and one that the environment forbids is a wasted step: it
changes nothing and gives no reward; in the job shop, where time passes and costs, it is to wait.
Nothing else differs: jumanji's observations still contain the mask. Episodes have a limit of steps
in both, for a policy that may do nothing forever.

Craftax has a program of its own: in the folder RUNS are its runs ``mask_0``, ``mask_1``, …, and
those with ``--no-mask``, ``none_0``, ``none_1``, …, if there are any.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import ppo_mask as pm
from hackmatrix import HackMatrix
from hackmatrix.networks import player_centered_mlp
from ppo_mask.envs import TimeStep
from ppo_mask.envs._env import declared_info
from ppo_mask.networks import Model
from ppo_mask.runner.commands._plot import read_log

ROOT = Path(__file__).parents[1]
KEPT, PICTURE = ROOT / "benchmarks/curves/masks.json", ROOT / "docs/images/masks.png"
SEEDS, POINTS = 3, 40


class Unmasked(pm.AbstractEnv[Any]):
    """Allows everything; what the environment forbids does nothing, or is to wait, if one can."""

    env: pm.AbstractEnv[Any]
    waiting: int | None
    num_actions: Any

    def __init__(self, env: pm.AbstractEnv[Any], waiting: int | None = None):
        self.env, self.waiting, self.num_actions = env, waiting, env.num_actions

    @property
    def observation_info(self) -> Any:
        """That of the environment."""
        return declared_info(self.env)

    def reset(self, key: Any) -> tuple[Any, TimeStep]:
        """Keeps what the environment shows, mask and all."""
        state, timestep = self.env.reset(key)
        return (state, timestep), self.show(timestep)

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, TimeStep]:
        """Plays the action if it is allowed."""
        inner, seen = state
        sizes = np.atleast_1d(self.num_actions)
        places = jnp.asarray(np.cumsum(sizes) - sizes) + jnp.atleast_1d(action)
        allowed = seen.action_mask[places]
        if self.waiting is not None:
            state, timestep = self.env.step(key, inner, jnp.where(allowed, action, self.waiting))
            return (state, timestep), self.show(timestep)
        off = jnp.bool_(False)
        idle = TimeStep(seen.observation, seen.action_mask, jnp.float32(0), off, off, seen.info)
        following = self.env.step(key, inner, action)
        state, timestep = jax.tree.map(
            lambda new, old: jnp.where(allowed.all(), new, old), following, (inner, idle)
        )
        return (state, timestep), self.show(timestep)

    def show(self, timestep: TimeStep) -> TimeStep:
        """The same without its mask."""
        names = ("observation", "reward", "terminated", "truncated", "info")
        shown = {name: getattr(timestep, name) for name in names}
        return TimeStep(action_mask=jnp.ones_like(timestep.action_mask), **shown)


class Passages(pm.AbstractEnv[Any]):
    """Eight rooms, each with four of ``num_actions`` doors; one leads on, three out of the game.

    The agent sees its room, which tells the doors: the mask says nothing that cannot be learned.
    """

    num_actions: int

    def doors(self, room: Array) -> Array:
        """The doors of a room; the first one leads on."""
        return (room * 4 + jnp.arange(4)) * 7 % self.num_actions

    def reset(self, key: Any) -> tuple[Any, TimeStep]:
        """Begins in the first room."""
        off = jnp.bool_(False)
        return jnp.int32(0), self.show(jnp.int32(0), jnp.float32(0), off)

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, TimeStep]:
        """Opens a door."""
        leads_on = action == self.doors(state)[0]
        return state + 1, self.show(state + 1, jnp.float32(leads_on), ~leads_on | (state == 7))

    def show(self, room: Array, reward: Array, over: Array) -> TimeStep:
        """The room as eight numbers."""
        mask = jnp.zeros(self.num_actions, bool).at[self.doors(room)].set(True)
        return TimeStep(jax.nn.one_hot(room, 8), mask | over, reward, over, jnp.bool_(False), {})


class Comparison(NamedTuple):
    """A task: its environment, the limit of steps, PPO's settings, steps, and a network.

    In ``waiting`` is the choice of each part of an action that is to wait, if there is one.
    """

    title: str
    make: Callable[[], pm.AbstractEnv[Any]]
    limit: int
    ppo: pm.PPO
    steps: int
    network: Callable[[Any, Any], Model]
    waiting: int | None = None


def mlp(env: Any, key: Any) -> Model:
    """A network that needs to know nothing of the task."""
    return pm.network_for(env, "mlp", hidden_dim=128, key=key)


def board(env: Any, key: Any) -> Model:
    """Convolutions."""
    return pm.network_for(env, "conv", hidden_dim=64, key=key)


def game(env: Any, key: Any) -> Model:
    """The game's network for two minutes on a laptop."""
    return player_centered_mlp(hidden_dim=64, num_layers=2, shared_layers=1, key=key)


def jumanji(name: str) -> Callable[[], pm.AbstractEnv[Any]]:
    """An environment of jumanji."""

    def make() -> pm.AbstractEnv[Any]:
        from ppo_mask.adapters.jumanji import JumanjiEnv

        return JumanjiEnv(name)

    return make


_DOORS = pm.PPO(num_envs=32, num_steps=64, learning_rate=1e-3, ent_coef=0.003)
_BOARD = pm.PPO(
    num_envs=64,
    num_steps=64,
    num_minibatches=8,
    learning_rate=3e-3,
    anneal_lr=True,
    gamma=0.8,
    gae_lambda=0.8,
    ent_coef=0.0,
    normalize_rewards=True,
)
_SHOP = pm.PPO(
    num_envs=64,
    num_steps=64,
    num_minibatches=8,
    anneal_lr=True,
    gamma=1.0,
    ent_coef=0.001,
    normalize_rewards=True,
)
_GAME = pm.PPO(learning_rate=2e-3, update_epochs=2, ent_coef=0.01, normalize_rewards=True)
TASKS = {
    f"doors_{2**n}": Comparison(
        f"{2**n:,} doors", lambda n=n: Passages(2**n), 64, _DOORS, 200_000, mlp
    )
    for n in (4, 8, 11, 14)
} | {
    "minesweeper": Comparison(
        "Minesweeper", jumanji("Minesweeper-v0"), 200, _BOARD, 200_000, board
    ),
    "jobshop": Comparison("job shop", jumanji("JobShop-v0"), 1_000, _SHOP, 600_000, mlp, 20),
    "hackmatrix": Comparison(
        "HackMatrix", lambda: HackMatrix(compact=True), 2_000, _GAME, 2_000_000, game
    ),
}


CRAFTAX = {"craftax": "Craftax, classic", "craftax_full": "Craftax, full"}
TITLES = {name: task.title for name, task in TASKS.items()} | CRAFTAX
RETURN = "train/mean_episode_return"


def train(task: Comparison, masked: bool, seed: int) -> dict[str, list[float]]:
    """Trains once; returns the curve of returns in training."""
    inner = task.make()
    env = pm.TimeLimit(inner if masked else Unmasked(inner, task.waiting), task.limit)
    network_key, key = jax.random.split(jax.random.key(seed))
    model = task.network(inner, network_key)
    trainer, history = pm.Trainer(env, task.ppo), pm.History()
    every = max(1, task.steps // task.ppo.batch_size // POINTS)
    trainer.train(trainer.init(model, key), task.steps, callbacks=[history], log_interval=every)
    lines = [line for line in history.records if RETURN in line.values]
    return {
        "steps": [line.env_steps for line in lines],
        "returns": [round(line.values[RETURN], 4) for line in lines],
    }


def run(names: list[str]) -> None:
    """Trains with all seeds, and keeps the curves; what is kept already is trained anew."""
    for name in names:
        curves: dict[str, Any] = {}
        for masked in (True, False):
            kind = "mask" if masked else "none"
            for seed in range(SEEDS):
                began = time.perf_counter()
                curves.setdefault(kind, []).append(train(TASKS[name], masked, seed))
                last, seconds = curves[kind][-1]["returns"][-1], time.perf_counter() - began
                rate = f"{TASKS[name].steps / seconds:,.0f} steps/s"
                print(name, kind, seed, last, f"{seconds:.0f} s", rate, flush=True)
        keep(name, curves)


def read(name: str, folder: Path) -> None:
    """Keeps the curves of the program's runs."""
    curves: dict[str, Any] = {}
    for kind in ("mask", "none"):
        for path in sorted(folder.glob(f"{kind}_*/metrics.jsonl")):
            steps, (returns,) = read_log(path)[RETURN]
            run = {"steps": steps, "returns": returns.round(4).tolist()}
            curves.setdefault(kind, []).append(run)
    if "mask" not in curves:
        raise SystemExit(f"{folder} has no runs mask_0, mask_1, ...")
    keep(name, curves)


def keep(name: str, curves: dict[str, Any]) -> None:
    """Writes a task's curves beside those of the others."""
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    KEPT.write_text(json.dumps({**kept, name: curves}) + "\n", encoding="utf-8")


def plot() -> None:
    """Draws the mean of the seeds, and a band from the lowest to the highest.

    Prints the mean of the last tenth of the steps, and the first step within 2% of that with the
    mask.
    """
    from matplotlib.figure import Figure

    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    names = [name for name in TITLES if name in kept]
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.9 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes in grid[len(names) :]:
        axes.set_visible(False)
    for name, axes in zip(names, grid, strict=False):
        goal = None
        for kind, label in (("mask", "with its mask"), ("none", "without")):
            if kind not in kept[name]:
                continue
            each = kept[name][kind]
            steps = np.array(each[0]["steps"])
            curves = np.stack([np.interp(steps, x["steps"], x["returns"]) for x in each])
            mean = curves.mean(0)
            end = mean[steps > 0.9 * steps[-1]].mean()
            goal = end - 0.02 * abs(end) if goal is None else goal
            first = next(iter(steps[mean >= goal]), "never")
            print(f"{TITLES[name]}, {label}: {end:.2f}, first near the mask's: {first}")
            axes.plot(steps, mean, label=label)
            axes.fill_between(steps, curves.min(0), curves.max(0), alpha=0.2, lw=0)
        axes.set_title(TITLES[name], fontsize=10)
        axes.set_xlabel("million environment steps", fontsize=8)
        axes.set_ylabel("return", fontsize=8)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    grid[0].legend(frameon=False, fontsize=8)
    figure.savefig(PICTURE, dpi=100)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="What a mask is worth.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("plot", help="draw the curves")
    runs = commands.add_parser("run", help="train with a mask and without, and keep the curves")
    runs.add_argument("names", nargs="+", choices=(*TASKS, "all"))
    for name in CRAFTAX:
        craftax = commands.add_parser(name, help="keep the curves of runs of this game")
        craftax.add_argument("runs", type=Path)
    options = parser.parse_args()
    if options.command == "plot":
        plot()
    elif options.command in CRAFTAX:
        read(options.command, options.runs)
    else:
        run(list(TASKS) if "all" in options.names else options.names)


if __name__ == "__main__":
    sys.exit(main())

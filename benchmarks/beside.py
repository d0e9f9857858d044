"""Training beside rejax, in turn: the same tasks, hyperparameters and sizes of networks.

pip install 'ppo-mask[gymnax]' rejax && python benchmarks/beside.py --turns 3 --json beside.json

Each turn trains each task once with each library, with another seed, in a process of its own and
without a compilation cache. The first update includes tracing and compiling, but no imports.
``--speed`` compares steps per second instead, for more tasks and sizes: in one process for each of
them, in which the libraries take turns of a second, three for each of ``--turns``, so that a
machine's changes of speed strike both.
rejax (https://github.com/keraJLi/rejax) has no masks, does not tell a time limit from an end, clips
each number of a gradient by itself, always clips the value, logs no metrics, checks for no NaN, and
has an optimizer for each of its two networks.
"""

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Task(NamedTuple):
    """An environment of gymnax, and how much of it a rollout and the whole training take."""

    env: str
    num_envs: int
    steps: int
    num_steps: int = 128


TASKS = (
    Task("CartPole-v1", 16, 500_000),
    Task("CartPole-v1", 256, 2_000_000),
    Task("Acrobot-v1", 16, 500_000),
    Task("Breakout-MinAtar", 64, 2_000_000),
    Task("Asterix-MinAtar", 64, 2_000_000),
)
SHARED: dict[str, Any] = {
    "learning_rate": 5e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_eps": 0.2,
    "vf_coef": 0.5,
    "ent_coef": 0.01,
    "max_grad_norm": 0.5,
    "num_minibatches": 4,
}
SPEED_TASKS = tuple(
    Task(name, num_envs, 0)
    for name in (
        *("CartPole-v1", "Acrobot-v1", "MountainCar-v0"),
        *("Asterix-MinAtar", "Breakout-MinAtar", "Freeway-MinAtar", "SpaceInvaders-MinAtar"),
    )
    for num_envs in (16, 64, 128, 256)
)
EPOCHS, WIDTH, EPISODES = 4, 64, 128
PER_MB = 1024**2 if sys.platform == "darwin" else 1024  # macOS counts memory in bytes.

# When a training began, a function that makes updates, the first state, and a state's mean return.
Training = tuple[float, Callable[[Any, int], Any], Any, Callable[[Any], float]]


def with_ppo_mask(task: Task, seed: int) -> Training:
    """Begins a training with this library."""
    import gymnax  # noqa: F401 - the adapter imports it, and imports are not counted
    import jax

    import ppo_mask as pm
    import ppo_mask.training
    from ppo_mask.adapters.gymnax import GymnaxEnv

    began = time.perf_counter()
    sizes = {"num_envs": task.num_envs, "num_steps": task.num_steps, "update_epochs": EPOCHS}
    env, config = GymnaxEnv(task.env), pm.PPO(**sizes, **SHARED)
    trainer = pm.Trainer(env, config)
    model_key, key, eval_key = jax.random.split(jax.random.key(seed), 3)
    model = pm.network_for(env, "mlp", hidden_dim=WIDTH, key=model_key)

    def train(state: Any, updates: int) -> Any:
        until = (int(state.update) + updates) * config.batch_size
        return trainer.train(state, until, log_interval=updates)

    def mean_return(state: Any) -> float:
        played = pm.evaluate(state.model, env, eval_key, EPISODES, greedy=False, num_envs=EPISODES)
        return played.mean_return

    return began, train, trainer.init(model, key), mean_return


class OneFlag:
    """Gives an environment of gymnax 1.0 the single flag for both ends that rejax 0.1 expects."""

    def __init__(self, env: Any):
        self.default_params, self.reset, self._step = env.default_params, env.reset, env.step
        self.action_space, self.observation_space = env.action_space, env.observation_space

    def step(self, *given: Any) -> Any:
        """Joins the two flags of gymnax's step."""
        observation, state, reward, terminated, truncated, info = self._step(*given)
        return observation, state, reward, terminated | truncated, info


def with_rejax(task: Task, seed: int) -> Training:
    """Begins what rejax's own ``train`` does, without evaluations on the way."""
    import gymnax
    import jax
    import rejax  # pyright: ignore[reportMissingImports] - not in dev

    began = time.perf_counter()
    sizes = {"num_envs": task.num_envs, "num_steps": task.num_steps, "num_epochs": EPOCHS}
    network = {"activation": "tanh", "hidden_layer_sizes": (WIDTH, WIDTH)}
    env = OneFlag(gymnax.make(task.env)[0])
    algorithm = rejax.PPO.create(env=env, agent_kwargs=network, **sizes, **SHARED)

    @jax.jit
    def train(state: Any, updates: int) -> Any:
        return jax.lax.fori_loop(0, updates, lambda _, s: algorithm.train_iteration(s), state)

    def mean_return(state: Any) -> float:
        return float(algorithm.eval_callback(algorithm, state, jax.random.key(seed))[1].mean())

    return began, train, jax.jit(algorithm.init_state)(jax.random.key(seed)), mean_return


LIBRARIES = {"ppo_mask": with_ppo_mask, "rejax": with_rejax}


def measure(library: str, task: Task, seed: int) -> dict[str, float]:
    """Trains in this process, and returns what that took."""
    import jax

    began, train, state, mean_return = LIBRARIES[library](task, seed)
    state = jax.block_until_ready(train(state, 1))
    first_update = time.perf_counter() - began
    state = train(state, task.steps // (task.num_envs * task.num_steps) - 1)
    return {
        "first_update": first_update,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / PER_MB,
        "return": mean_return(state),
    }


def measure_speed(task: Task, turns: int) -> dict[str, Any]:
    """Trains with both libraries in this process, in turn, for a second each time."""
    import jax

    speeds: dict[str, list[float]] = {library: [] for library in LIBRARIES}
    ready: dict[str, tuple[Callable[[Any, int], Any], Any]] = {}
    for library, begin in LIBRARIES.items():
        _, train, state, _ = begin(task, 0)
        # Twice, since rejax compiles again for the types of its own result.
        ready[library] = train, jax.block_until_ready(train(train(state, 1), 1))
    updates, seconds = 1, 1.0
    for turn in range(-1, 3 * turns):  # The first is to find out how many updates take as long.
        for library, (train, state) in ready.items():
            began = time.perf_counter()
            ready[library] = train, jax.block_until_ready(train(state, updates))
            seconds = time.perf_counter() - began
            if turn >= 0:
                speeds[library].append(updates * task.num_envs * task.num_steps / seconds)
        if turn < 0:
            updates = max(1, round(1 / seconds))
    pairs = zip(*speeds.values(), strict=True)
    medians = {library: statistics.median(each) for library, each in speeds.items()}
    return {**medians, "ratio": statistics.median(ours / theirs for ours, theirs in pairs)}


def speeds_side_by_side(turns: int) -> None:
    """Prints a table of steps per second, ours / theirs, and their ratio."""
    print("| task | envs | steps/s | ratio |\n|---|---|---|---|")
    for number, task in enumerate(SPEED_TASKS):
        command = [sys.executable, __file__, "--one", "both", str(number), str(turns)]
        row = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
        speeds = " / ".join(f"{row[library]:,.0f}" for library in LIBRARIES)
        print(f"| {task.env} | {task.num_envs} | {speeds} | {row['ratio']:.2f} |", flush=True)


def in_turn(tasks: Sequence[int], turns: int) -> list[dict[str, Any]]:
    """Returns all measurements, each with its library, task and seed."""
    found: list[dict[str, Any]] = []
    env = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    for seed, number in itertools.product(range(turns), tasks):
        # The order changes from turn to turn, in case the machine's speed drifts.
        for library in sorted(LIBRARIES, reverse=seed % 2 == 1):
            command = [sys.executable, __file__, "--one", library, str(number), str(seed)]
            printed = subprocess.check_output(command, text=True, env=env)
            row = {"library": library, "task": number, "seed": seed}
            found.append(row | json.loads(printed.splitlines()[-1]))
            print(found[-1], file=sys.stderr)
    return found


def table(found: Sequence[dict[str, Any]]) -> str:
    """Formats a row for each task: ours / theirs, and the median ratio of a turn."""
    columns = "task | envs | seconds to the first update | ratio | return | MB"
    lines = [f"| {columns} |", "|" + "---|" * 6]
    for number, task in enumerate(TASKS):
        turns = [[x for x in found if (x["library"], x["task"]) == (y, number)] for y in LIBRARIES]
        if turns[0]:
            lines.append(f"| {task.env} | {task.num_envs} | {_cells(*turns)} |")
    return "\n".join(lines)


def _cells(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> str:
    def both(name: str, digits: int = 0) -> str:
        medians = [statistics.median(x[name] for x in turns) for turns in (ours, theirs)]
        return " / ".join(f"{median:,.{digits}f}" for median in medians)

    def returns(turns: list[dict[str, Any]]) -> str:
        each = [x["return"] for x in turns]
        return f"{statistics.mean(each):.1f} ({min(each):.1f} to {max(each):.1f})"

    first = "first_update"
    ratio = statistics.median(a[first] / b[first] for a, b in zip(ours, theirs, strict=True))
    starts, memory = both(first, 1), both("peak_mb")
    return f"{starts} | {ratio:.2f} | {returns(ours)} / {returns(theirs)} | {memory}"


def main() -> None:
    """Reads the command line, measures, and prints the table."""
    parser = argparse.ArgumentParser(description="Training beside rejax.")
    parser.add_argument("--turns", type=int, default=3, help="seeds (default: 3)")
    parser.add_argument("--tasks", type=int, nargs="*", default=range(len(TASKS)))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements there")
    parser.add_argument("--speed", action="store_true", help="steps per second, of more tasks")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        library, number, seed = options.one
        if library == "both":
            print(json.dumps(measure_speed(SPEED_TASKS[int(number)], int(seed))))
            return
        print(json.dumps(measure(library, TASKS[int(number)], int(seed))))
        return
    if options.speed:
        speeds_side_by_side(options.turns)
        return
    found = in_turn(options.tasks, options.turns)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()

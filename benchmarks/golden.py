"""The golden runs: what a change that moves code around must not change.

``python benchmarks/golden.py record FOLDER`` before the change, ``... compare FOLDER`` after it. A
run's parameters are compared to the bit, and its log lines to a relative 1e-6. The machine must be
the same, since XLA compiles for the processor that it finds.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

# For the run on two devices; the other runs use one of them.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import ppo_mask as pm
from hackmatrix.task import DEFAULTS, TASK
from ppo_mask.devices.sharding import make_mesh
from ppo_mask.envs.probes import MaskedDoors, MaskedLocks, RememberedCue
from ppo_mask.runner import load_run, main

Result = tuple[list[np.ndarray], list[dict[str, float]]]
UPDATES = 4
SIZES: dict[str, Any] = {"num_envs": 16, "num_steps": 16, "learning_rate": 3e-3}
LOCKS = MaskedLocks(length=5, keys=4)
METRICS = {
    "actions/first": pm.Metric(lambda action, info: action.reshape(-1)[0] == 0),
    "actions/last": pm.Metric(lambda action, info: action.reshape(-1)[-1], reduce="max"),
}


def arrays_of(model: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(model) if isinstance(x, jax.Array)]


def trained(
    env: Any = LOCKS,
    network: str = "mlp",
    curriculum: Any = None,
    mesh: Any = None,
    **settings: Any,
) -> Result:
    """Four updates of a small network."""
    trainer = pm.Trainer(
        env, pm.PPO(**(SIZES | settings)), metrics=METRICS, curriculum=curriculum, mesh=mesh
    )
    model = pm.network_for(env, network, hidden_dim=16, key=jax.random.key(0))
    history = pm.History()
    state = trainer.init(model, jax.random.key(1))
    steps = UPDATES * trainer.algorithm.batch_size
    state = trainer.train(state, steps, callbacks=[history], log_interval=1)
    return arrays_of(state.model), [record.values for record in history.records]


def own_loss() -> Result:
    def loss(model: Any, batch: Any, settings: Any) -> Any:
        total, metrics = pm.ppo.ppo_loss(model, batch, settings)
        total = total + 1e-3 * jnp.square(batch.return_).mean() * metrics["entropy"]
        return total, metrics | {"total_loss": total, "largest": batch.advantage.max()}

    return trained(loss=loss)


def own_optimizer() -> Result:
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(3e-3))
    return trained(optimizer=optimizer)


def self_play() -> Result:
    from ppo_mask.adapters.pgx import PgxGame
    from ppo_mask.games import Seat, random_opponent

    env = Seat(PgxGame("tic_tac_toe"), random_opponent)
    return trained(env, curriculum=pm.training.SelfPlay(lambda env: env.opponent, every=2))


def two_seeds() -> Result:
    trainer = pm.Trainer(LOCKS, pm.PPO(**SIZES), metrics=METRICS)

    def begin(key: Any) -> Any:
        model_key, init_key = jax.random.split(key)
        model = pm.network_for(LOCKS, "mlp", hidden_dim=16, key=model_key)
        return trainer.init(model, init_key)

    states = eqx.filter_jit(eqx.filter_vmap(begin))(jax.random.split(jax.random.key(0), 2))
    steps, histories = UPDATES * trainer.algorithm.batch_size, [pm.History(), pm.History()]
    seeds = pm.training.PerSeed([[history] for history in histories])
    states = trainer.train(states, steps, callbacks=[seeds], log_interval=1)
    lines = [record.values for history in histories for record in history.records]
    return arrays_of(states.model), lines


def game(*flags: str) -> Result:
    """A run of HackMatrix from its command line."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--checkpoint-dir", folder, "--run-name", "run", "--num-devices", "1"]
        assert main(TASK, DEFAULTS, [*words, *flags]) == 0
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
        policy = load_run(TASK, DEFAULTS, f"{folder}/run").policy
        return arrays_of(policy.model), [*map(json.loads, lines)]


PHASES = """
- {until: 0.5, program_bonus: 5, learning_rate: 1e-3, head_start: 0.2}
- {program_bonus: [5, 1], learning_rate: [1e-3, 0], ent_coef: [0.01, 0]}
"""


def phases() -> Result:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(PHASES)
        file.flush()
        sizes = ["--num-envs=16", "--num-steps=16", "--hidden-dim=16", "--log-interval=1"]
        return game(*sizes, "--total-timesteps", "1024", "--phases", file.name)


RUNS: dict[str, Callable[[], Result]] = {
    "observation_normalization": lambda: trained(normalize_observations=True),
    "reward_normalization": lambda: trained(normalize_rewards=True),
    "target_kl": lambda: trained(target_kl=1e-3),
    "gru": lambda: trained(RememberedCue(delay=4), "gru"),
    "multidiscrete": lambda: trained(MaskedDoors(length=3)),
    "own_optimizer": own_optimizer,
    "own_loss": own_loss,
    "self_play": self_play,
    "phases": phases,
    "two_seeds": two_seeds,
    "two_devices": lambda: trained(mesh=make_mesh(2)),
    "bfloat16": lambda: trained(precision="bfloat16"),
    "fast": lambda: game("--preset", "fast", "--total-timesteps", "200000"),
    "reference": lambda: game("--preset", "reference", "--total-timesteps", "200000"),
}


def record(name: str, folder: Path) -> str:
    arrays, lines = RUNS[name]()
    np.savez(folder / f"{name}.npz", *arrays)
    (folder / f"{name}.json").write_text(json.dumps(lines))
    return "recorded"


def compare(name: str, folder: Path) -> str:
    """Returns "same", or what differs."""
    arrays, lines = RUNS[name]()
    saved = np.load(folder / f"{name}.npz")
    theirs = [saved[key] for key in saved.files]
    before: list[dict[str, float]] = json.loads((folder / f"{name}.json").read_text())
    wrong: list[str] = []
    # A change may move arrays in the tree of the model.
    unmatched = [x.tobytes() for x in theirs]
    for x in arrays:
        if x.tobytes() in unmatched:
            unmatched.remove(x.tobytes())
        else:
            near = [y for y in theirs if y.shape == x.shape]
            gap = min((float(np.abs(x - y).max()) for y in near), default=float("nan"))
            wrong.append(f"an array {list(x.shape)} differs by {gap:.3g}")
    if len(arrays) != len(theirs):
        wrong.append(f"{len(arrays)} arrays, and there were {len(theirs)}")
    if len(lines) != len(before):
        wrong.append(f"{len(lines)} log lines, and there were {len(before)}")
    for ours, other in zip(lines, before, strict=False):
        if names := ours.keys() ^ other.keys():
            wrong.append(f"metrics {sorted(names)} are in one of the logs only")
        for metric in (ours.keys() & other.keys()) - {"train/steps_per_second"}:
            if not np.isclose(ours[metric], other[metric], rtol=1e-6, atol=1e-6, equal_nan=True):
                wrong.append(f"{metric} is {ours[metric]:.9g} and was {other[metric]:.9g}")
    return "same" if not wrong else f"DIFFERS: {'; '.join(wrong[:6])} ({len(wrong)} in all)"


def run() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", nargs="*", help=f"some of {', '.join(RUNS)}; all if none is named")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    act = record if given.action == "record" else compare
    results = {name: act(name, given.folder) for name in given.runs or RUNS}
    for name, result in results.items():
        print(f"{name:26}{result}")
    return 0 if all(result in ("same", "recorded") for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(run())

"""How often the training program is compiled: once by each process, from the cache if it can."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CORRIDOR = Path(__file__).parents[1] / "support" / "corridor.py"

# Log lines, a second call, and a state read from a checkpoint: all use the same program.
TRAINER = """
import sys
from pathlib import Path
import jax
import optax
import ppo_mask as pm
from ppo_mask.devices.sharding import make_mesh

def loss(network, batch, config):
    loss, metrics = pm.ppo.ppo_loss(network, batch, config)
    return loss, metrics | {"mine": loss}

devices = int(sys.argv[2])
jax.config.update("jax_num_cpu_devices", devices)
env = pm.envs.probes.MaskedLocks()
config = pm.PPOConfig(
    num_envs=8, num_steps=4, normalize_observations=True, normalize_rewards=True
)
trainer = pm.Trainer(
    env,
    config,
    mesh=make_mesh(devices),
    algorithm=pm.ppo.Algorithm(optax.adam(optax.linear_schedule(1e-3, 0, 100)), loss),
)
model = pm.MLPActorCritic.for_env(env, hidden_dim=8, key=jax.random.key(0))
state = trainer.init(model, jax.random.key(1))
for updates in (3, 5):
    state = trainer.train(state, updates * config.batch_size, log_interval=1)
store = pm.checkpoints.CheckpointStore(Path(sys.argv[1]))
state = pm.checkpoints.restore(store.save(5, state, {}), state)
trainer.train(state, 8 * config.batch_size, log_interval=1)
"""


def count_compilations(arguments: list[str], cache: Path) -> tuple[int, int]:
    """How often a process compiled or loaded the training program, and how often it loaded it."""
    environment = {"JAX_LOG_COMPILES": "1", "JAX_COMPILATION_CACHE_DIR": str(cache)}
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return (
        len(re.findall(r"Finished XLA compilation of jit\(run_chunk\)", done.stderr)),
        len(re.findall(r"cache hit for 'jit_run_chunk'", done.stderr)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_trainer_compiles_once_in_each_start(devices: int, tmp_path: Path) -> None:
    for start, loaded in (("first", 0), ("second", 1)):
        program = ["-c", TRAINER, str(tmp_path / start), str(devices)]
        assert count_compilations(program, tmp_path / "cache") == (1, loaded)


@pytest.mark.slow
def test_runner_compiles_once_in_each_start(tmp_path: Path) -> None:
    folder = ["--checkpoint-dir", str(tmp_path / "runs")]
    program = [str(CORRIDOR), "--num-devices", "2", "--log-interval", "1"]
    starts = [
        ([*folder, "--run-name", "first"], 0),
        ([*folder, "--run-name", "second"], 1),
        (["--resume", str(tmp_path / "runs" / "first"), "--total-timesteps", "384"], 1),
    ]
    for flags, loaded in starts:
        assert count_compilations([*program, *flags], tmp_path / "cache") == (1, loaded)

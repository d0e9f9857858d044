"""``--compile-for``: what it refuses and prints. The programs: test_for_accelerators.py."""

import json
import re
from pathlib import Path
from typing import Any

import jax
import pytest

from corridor import DEFAULTS, TASK
from ppo_mask.devices.topologies import find
from ppo_mask.envs.probes import MaskedLocks
from ppo_mask.errors import RunError
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPOConfig
from ppo_mask.runner import ahead, main, replace, resolve
from ppo_mask.runner.ahead import _compile
from ppo_mask.training import Trainer, lower_chunk

SMALL = {"num_envs": "4", "num_steps": "8", "hidden_dim": "8", "num_layers": "1"}


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--compile-for v4-9", "there is no TPU or GPU v4-9: did you mean v4-8?"),
        ("--compile-for h100:9", "there is no TPU or GPU h100:9"),
        ("--compile-for v4-8 --resume", "--compile-for does not go with --resume; for the program"),
        ("--compile-for v4-8 --auto-tune", "--compile-for does not go with --auto-tune"),
        ("--compile-for v4-8 --num-seeds 2", "--compile-for does not go with --num-seeds"),
        ("--json", "--json goes with --compile-for"),
    ],
)
def test_refusals_are_one_line(
    words: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(TASK, DEFAULTS, words.split()) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {message}")
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def cpu_as_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's CPU stands for the TPU: everything but libtpu is the same."""
    monkeypatch.setattr(_compile, "devices_of", lambda topology: jax.devices()[:1])
    monkeypatch.setattr(_compile, "versions_for", lambda topology: {"jax": "1.2", "libtpu": "1.2"})


def config(**given: str) -> Any:
    return resolve(replace(DEFAULTS, {**SMALL, **given}))


@pytest.mark.slow
@pytest.mark.usefixtures("cpu_as_tpu")
def test_a_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    # What is about the run itself is no obstacle: the folder's name, the bucket, the other hosts.
    words += ["--checkpoint-dir", "gs://none/at-all", "--run-name=x", "--distributed", "--wandb"]
    assert main(TASK, DEFAULTS, [*words, "--compile-for=v5e-1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["topology"] == "v5e-1"
    assert report["num_chips"] == report["num_hosts"] == 1
    assert report["state_arrays"] == report["aliased_arrays"]
    assert report["environment_step"]["turns"] == 8
    assert report["gradient_step"]["turns"] == 16
    assert report["gradient_step"]["kernels"]["fusions"] > 0
    assert report["environment_step"]["kernels"]["fusions"] > 0
    assert report["rest"] == report["host_transfers"] == []
    assert 0 < report["memory"]["needed"] < 10_000_000
    assert main(TASK, DEFAULTS, [*words, "--compile-for=v5e-1"]) == 0
    text = capsys.readouterr().out
    assert "v5e-1: 1 chip of cpu, 1 host; jax 1.2, libtpu 1.2\n" in text
    assert re.search(r"^memory +fits: 0\.\d\d% of 15\.75 GiB on each chip$", text, re.M)
    assert re.search(r"^  an environment step +nothing; 8 in an update$", text, re.M)
    assert re.search(r"^host +moves while a chunk runs: nothing$", text, re.M)
    assert "4 envs x 8 steps = 32; 4 minibatches, 4 epochs\n" in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("cpu_as_tpu")
def test_what_cannot_be_compiled_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(message: str, topology: str = "v5e-1", **given: str) -> None:
        with pytest.raises(RunError, match=message):
            ahead.compile_ahead(TASK, config(**given), find(topology))

    refused("from 1 to 1 on v5e-1, got 2", num_devices="2")
    refused("--num-devices does not go with several hosts", topology="v4-16", num_devices="2")
    refused("too long, at most 100", length="101")
    with monkeypatch.context() as patch:
        patch.setattr(_compile, "host_env_in", lambda env: env)
        refused("--compile-for is for environments in JAX")
    # What compiles for GPUs does not look at their memory.
    small = find("h100")._replace(memory=2**10, compiler_options={})
    with pytest.raises(RunError, match=r"fit on h100: it wants 0\.\d\dGiB of the 0\.00GiB"):
        ahead.compile_ahead(TASK, config(), small)
    monkeypatch.setattr(_compile, "devices_of", lambda topology: jax.devices()[:1] * 3)
    refused("v5e-4: 4 environments cannot be split over 3 devices; 3 could", topology="v5e-4")


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory "
            "space hbm. Used 41.02G of 30.75G hbm. Exceeded hbm capacity by 10.27G.\n\nTotal",
            "does not fit on v4-8: it wants 41.02GiB of the 30.75GiB of a chip; raise --gradient",
        ),
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (256.00G) exceeds available HBM (30.75G).",
            "it wants 256.00GiB of the 30.75GiB",
        ),
        ("RESOURCE_EXHAUSTED: no reason", "does not fit on v4-8: a chip has 30.75GiB; raise"),
        ("INTERNAL: a bug\nin XLA", "this cannot be compiled for v4-8: INTERNAL: a bug$"),
    ],
)
def test_what_the_compiler_says(raised: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile(self: jax.stages.Lowered, compiler_options: Any = None) -> None:
        raise jax.errors.JaxRuntimeError(raised)

    lowered = jax.jit(lambda x: x).lower(0)
    monkeypatch.setattr(jax.stages.Lowered, "compile", compile)
    with pytest.raises(RunError, match=message):
        _compile._compile(lowered, find("v4-8"))


def test_a_program_is_lowered_for_a_mesh() -> None:
    trainer = Trainer(MaskedLocks(), PPOConfig(num_envs=4, num_steps=4))
    model = MLPActorCritic.for_env(trainer.env, hidden_dim=4, key=jax.random.key(0))
    state = trainer.init(model, jax.random.key(1))
    with pytest.raises(ValueError, match="there is none"):
        lower_chunk(trainer, state)

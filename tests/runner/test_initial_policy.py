"""``--initial-policy``: a run that begins with weights that were trained before."""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import ppo_mask as pm
from corridor import DEFAULTS, TASK
from ppo_mask.checkpoints import RunFolder
from ppo_mask.runner import main

# So small that weights stay as they were.
STILL = ("--lr=1e-30", "--total-timesteps=32", "--no-tensorboard")


def train(folder: Path, name: str, *flags: str) -> int:
    return main(TASK, DEFAULTS, [f"--checkpoint-dir={folder}", f"--run-name={name}", *flags])


def weights(run: Path) -> list[np.ndarray]:
    return [
        np.asarray(x) for x in jax.tree.leaves(eqx.filter(pm.load_policy(run).model, eqx.is_array))
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    assert train(folder, "first", "--normalize-observations") == 0
    return folder / "first"


def test_a_run_begins_with_the_weights_and_resumes_without_them(trained, tmp_path, capsys):
    flags = ("--normalize-observations", f"--initial-policy={trained}", "--seed=7")
    assert train(tmp_path, "next", *STILL, *flags) == 0
    layers = [x for x in weights(tmp_path / "next") if x.ndim == 2]
    for mine, theirs in zip(layers, (x for x in weights(trained) if x.ndim == 2), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    trained.rename(tmp_path / "moved")
    try:
        assert train(tmp_path, "next", f"--resume={tmp_path / 'next'}", "--total-timesteps=64") == 0
    finally:
        (tmp_path / "moved").rename(trained)
    assert RunFolder(tmp_path / "next").checkpoints.newest() == 2


@pytest.mark.slow
def test_each_of_several_seeds_begins_with_them(trained, tmp_path):
    flags = ("--normalize-observations", f"--initial-policy={trained}", "--num-seeds=2")
    assert train(tmp_path, "many", *STILL, *flags) == 0
    for seed in range(2):
        layers = [x for x in weights(tmp_path / f"many-seed{seed}") if x.ndim == 2]
        for mine, theirs in zip(layers, (x for x in weights(trained) if x.ndim == 2), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_a_task_has_policies_by_name(trained, tmp_path):
    task = dataclasses.replace(TASK, policies={"known": trained})
    flags = ("--normalize-observations", "--initial-policy=known", f"--checkpoint-dir={tmp_path}")
    assert main(task, DEFAULTS, [*STILL, *flags, "--run-name=next"]) == 0
    mine, theirs = weights(tmp_path / "next"), weights(trained)
    assert any(x.ndim == 2 and np.array_equal(x, y) for x, y in zip(mine, theirs, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--hidden-dim=9",), "hidden_dim=9"),
        ((), "this run trains MLPActorCritic("),
        (("--initial-policy=nowhere",), "there is no checkpoint"),
    ],
)
def test_another_network_or_none_is_refused_in_one_line(trained, tmp_path, capsys, flags, message):
    assert train(tmp_path, "wrong", f"--initial-policy={trained}", *flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "wrong").exists()

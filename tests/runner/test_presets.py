"""Presets: files of settings that a program offers by name."""

import dataclasses
import re
from pathlib import Path

import jax
import pytest

from counting import DEFAULTS, TASK
from hackmatrix.task import DEFAULTS as GAME, TASK as GAME_TASK
from ppo_mask.errors import RunError
from ppo_mask.runner import main, make_plan
from ppo_mask.runner._schema import as_dict


@pytest.fixture
def presets(tmp_path: Path) -> Path:
    folder = tmp_path / "presets"
    folder.mkdir()
    (folder / "quick.yaml").write_text("# For a first look.\nnum_envs: 8\nnum_steps: 8\nlr: 1e-3\n")
    (folder / "slow.yaml").write_text("algorithm: {num_envs: 32}\n")
    return folder


def ppo(presets: Path | None, *arguments: str):
    return make_plan(DEFAULTS, arguments, "", presets=presets).config.algorithm


def test_flags_win_over_a_file_and_a_file_over_a_preset(presets, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("num_steps: 16\nlr: 2e-3\n")
    found = ppo(presets, "--preset=quick", f"--config={config}", "--lr=3e-3")
    assert (found.num_envs, found.num_steps, found.learning_rate) == (8, 16, 3e-3)
    config.write_text("preset: quick\nnum_steps: 16\n")
    found = ppo(presets, f"--config={config}")
    assert (found.num_envs, found.num_steps, found.learning_rate) == (8, 16, 1e-3)


def test_on_an_accelerator_the_batch_is_the_devices(presets, monkeypatch, capsys):
    batch = "num_steps: 8\nlr: 1e-3\naccelerator: {num_envs: 64, num_steps: 4}\n"
    both = presets / "both.yaml"
    both.write_text(batch)

    def chosen(*flags: str):
        found = ppo(presets, "--preset=both", *flags)
        return found.num_envs, found.num_steps, found.learning_rate

    default = DEFAULTS.algorithm.num_envs, DEFAULTS.algorithm.num_steps
    assert chosen() == (default[0], 8, 1e-3)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "device_count", lambda: 4)
    assert chosen() == (256, 4, 1e-3)
    kind = jax.devices()[0].device_kind
    said = f"note: for 4 x {kind} the preset sets --num-envs 256 --num-steps 4\n"
    assert capsys.readouterr().out == said
    assert chosen("--num-devices=2", "--num-steps=16") == (128, 16, 1e-3)
    capsys.readouterr()
    assert chosen("--num-envs=32") == (32, 4, 1e-3)
    assert capsys.readouterr().out == f"note: for 4 x {kind} the preset sets --num-steps 4\n"
    assert chosen("--num-seeds=2")[0] == 64
    both.write_text("lr: 1e-3\naccelerator: {num_envs: 64, num_steps: 4}\n")
    assert chosen("--auto-tune") == (*default, 1e-3)


def test_a_resumed_run_keeps_its_batch_on_an_accelerator(presets, tmp_path, monkeypatch):
    (presets / "both.yaml").write_text("num_envs: 8\nnum_steps: 8\naccelerator: {num_envs: 64}\n")
    task = dataclasses.replace(TASK, presets=presets)
    runs = [f"--checkpoint-dir={tmp_path}", "--run-name=a", "--preset=both", "--num-envs=16"]
    assert main(task, DEFAULTS, [*runs, "--total-timesteps=128"]) == 0
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert ppo(presets, f"--resume={tmp_path}/a", "--preset=both").num_envs == 16


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("quik", "no preset quik; did you mean quick?; there are quick, slow"),
        ("../quick", "no preset ../quick"),
        ("typo", "typo.yaml: unknown setting num_env; did you mean"),
        (None, "no preset quick: this program has none"),
    ],
)
def test_a_preset_that_cannot_be_is_refused(presets, name, message):
    if name == "typo":
        (presets / "typo.yaml").write_text("num_env: 8\n")
    with pytest.raises(RunError, match=re.escape(message)):
        ppo(name and presets, f"--preset={name or 'quick'}")


def test_help_shows_presets_with_their_comments(presets, capsys):
    with pytest.raises(SystemExit):
        main(dataclasses.replace(TASK, presets=presets), DEFAULTS, ["--help"])
    assert "preset quick:\n  # For a first look.\n  num_envs: 8" in capsys.readouterr().out


def test_a_run_of_a_preset_resumes_with_it_and_without(presets, tmp_path):
    task = dataclasses.replace(TASK, presets=presets)
    runs = [f"--checkpoint-dir={tmp_path}", "--run-name=a", "--preset=quick"]
    assert main(task, DEFAULTS, [*runs, "--total-timesteps=64"]) == 0
    assert main(task, DEFAULTS, [*runs, f"--resume={tmp_path}/a", "--total-timesteps=128"]) == 0
    assert main(task, DEFAULTS, [f"--resume={tmp_path}/a", "--total-timesteps=192"]) == 0
    with pytest.raises(RunError, match="has num_envs 8, this run asks for 32"):
        make_plan(DEFAULTS, [f"--resume={tmp_path}/a", "--preset=slow"], "", presets=presets)


@pytest.mark.parametrize(
    ("backend", "name", "sizes"),
    [("gpu", "fast", (4096, 8)), ("cpu", "fast", (256, 128)), ("cpu", "champion", (512, 128))],
)
def test_the_batch_of_a_preset_of_the_game(backend, name, sizes, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    words, game = [f"--preset={name}"], GAME_TASK.offer(GAME)
    found = make_plan(game, words, "", presets=GAME_TASK.presets).config.algorithm
    assert (found.num_envs, found.num_steps) == sizes


def test_presets_of_the_game_load():
    assert GAME_TASK.presets is not None
    names = sorted(path.stem for path in GAME_TASK.presets.glob("*.yaml"))
    assert names == ["champion", "fast", "reference", "strong"]
    for name in names:
        words, game = [f"--preset={name}"], GAME_TASK.offer(GAME)
        config = make_plan(game, words, "", presets=GAME_TASK.presets).config
        if name == "reference":
            plain = make_plan(game, [], "").config
            same = dataclasses.replace(config.run, preset=None)
            assert as_dict(dataclasses.replace(config, run=same)) == as_dict(plain)

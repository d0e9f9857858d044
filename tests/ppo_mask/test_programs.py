"""Traced programs are found again, and nothing is lost where they cannot be kept."""

import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from corridor import DEFAULTS, TASK, Corridor
from same_run import assert_same_run
from somebodys import files, kept, look_at

from ppo_mask import programs
from ppo_mask.config import PPOConfig
from ppo_mask.networks import MLPActorCritic
from ppo_mask.programs import KeptPrograms
from ppo_mask.run import main
from ppo_mask.run_folder import RunFolder
from ppo_mask.train import TrainState, init, train


def sealed(said: dict[str, Any], body: bytes) -> bytes:
    """A file that says this."""
    checksum = programs._checksum(said["modules"], said["structure"], body)
    return json.dumps({**said, "sha256": checksum}).encode() + b"\n" + body


def test_what_is_found_is_run_and_nothing_is_traced(tmp_path: Path, game: Any) -> None:
    folder, x = tmp_path / "programs", jnp.arange(3.0)
    result = kept(folder, game, x)
    [path] = files(folder)
    assert jax.tree.structure(result) == jax.tree.structure(game.compute(x))
    np.testing.assert_array_equal(result["y"], 2 * x + 3)

    # Were it traced, it would not compute what another function does.
    other = tmp_path / "other"
    game.FACTOR = 5.0
    kept(other, game, x)
    game.FACTOR = 2.0
    header, _, _ = path.read_bytes().partition(b"\n")
    [different] = files(other)
    said, _, body = different.read_bytes().partition(b"\n")
    assert path.name == different.name
    said = {**json.loads(said), "modules": json.loads(header)["modules"]}
    path.write_bytes(sealed(said, body))
    np.testing.assert_array_equal(kept(folder, game, x)["y"], 5 * x + 3)


def test_another_process_finds_it(tmp_path: Path, game: Any) -> None:
    folder = tmp_path / "programs"
    script = (
        "import sys; from pathlib import Path; import jax.numpy as jnp, somebodys_game as game; "
        "from ppo_mask.programs import KeptPrograms; "
        f"programs = KeptPrograms(Path({str(folder)!r}), ['somebodys_game']); "
        "print(programs.kept(game.compute)(jnp.ones(2), game.plus(1.0))['y'])"
    )
    where = Path(game.__file__).parent.parent
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=where, capture_output=True, text=True, check=True
        )
        assert done.stdout == "[6. 6.]\n"
        assert len(files(folder)) == 1


@pytest.mark.parametrize("setting", ["jax_disable_jit", "jax_debug_nans"])
def test_whoever_looks_for_an_error_runs_the_code_itself(
    setting: str, tmp_path: Path, game: Any, request: pytest.FixtureRequest
) -> None:
    jax.config.update(setting, True)
    request.addfinalizer(lambda: jax.config.update(setting, False))
    np.testing.assert_array_equal(kept(tmp_path / "programs", game, jnp.ones(3))["y"], 5)
    assert files(tmp_path / "programs") == []


def test_what_is_patched_between_two_runs_of_a_process_counts(tmp_path: Path, game: Any) -> None:
    folder, x = KeptPrograms(tmp_path / "programs", {"somebodys_game"}), jnp.ones(3)
    np.testing.assert_array_equal(folder.kept(game.compute)(x)["y"], 5)
    game.FACTOR = 3.0
    np.testing.assert_array_equal(folder.kept(game.compute)(x)["y"], 6)
    # In a part that jax.jit has traced before, too.
    game.compute(x)
    game.ZERO = 1.0
    np.testing.assert_array_equal(folder.kept(game.compute)(x)["y"], 9)


def local(x: Any) -> Any:
    return x + 1


def test_what_cannot_be_known_or_kept_is_traced_as_ever(
    tmp_path: Path, game: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, x = tmp_path / "programs", jnp.ones(3)
    for extra in (local, lambda x: x + 1, functools.partial(local)):
        np.testing.assert_array_equal(kept(folder, game, x, extra)["y"], 6)
    # A class that has no name to go by.
    np.testing.assert_array_equal(kept(folder, game, x, game.made(3.0))["y"], 15)
    # A package named, and in it something of one that is not.
    monkeypatch.setattr(game, "inner", local)
    np.testing.assert_array_equal(kept(folder, game, x)["y"], 7)
    monkeypatch.undo()
    # Called back into Python; results that no file tells of.
    for function in (game.called_back, game.with_a_function, game.with_a_number, game.weakly):
        compiled = eqx.filter_jit(function)
        programs = KeptPrograms(folder, {"somebodys_game"})
        assert eqx.tree_equal(programs.kept(compiled)(x), compiled(x))
        result, expected = map(jax.tree.leaves, (programs.kept(compiled)(x), compiled(x)))
        weak = [
            [getattr(leaf, "weak_type", None) for leaf in leaves] for leaves in (result, expected)
        ]
        assert weak[0] == weak[1]
    assert files(folder) == []
    # A function without a name is none the worse for it.
    unnamed = eqx.filter_jit(functools.partial(local))
    np.testing.assert_array_equal(KeptPrograms(folder, set()).kept(unnamed)(x), 2)


@pytest.mark.parametrize("damage", [b"", b"\n", b"{}\nabc", b"[1]\n", None], ids=repr)
def test_a_damaged_file_is_written_anew(damage: bytes | None, tmp_path: Path, game: Any) -> None:
    folder, x = tmp_path / "programs", jnp.ones(3)
    kept(folder, game, x)
    [path] = files(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] if damage is None else damage)
    np.testing.assert_array_equal(kept(folder, game, x)["y"], 5)
    assert files(folder) == [path]
    assert path.read_bytes().partition(b"\n")[0] != damage
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    np.testing.assert_array_equal(kept(folder, game, x)["y"], 5)
    path.write_bytes(whole.replace(b'["leaf", 0]', b'["leaf", 1]', 1))
    np.testing.assert_array_equal(kept(folder, game, x)["y"], 5)


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path, game: Any) -> None:
    (tmp_path / "file").write_text("")
    np.testing.assert_array_equal(kept(tmp_path / "file" / "programs", game, jnp.ones(3))["y"], 5)


def test_what_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, game: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    np.testing.assert_array_equal(kept(tmp_path / "programs", game, jnp.ones(3))["y"], 5)
    assert files(tmp_path / "programs") == []


def test_old_programs_are_forgotten(
    tmp_path: Path, game: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_NEWEST", 3)
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "letters").write_text("somebody's")
    for size in (1, 2, 3):
        kept(folder, game, jnp.ones(size))
    first = {path.name: path for path in folder.glob("*.program")}
    kept(folder, game, jnp.ones(1))  # In use again, so not the oldest.
    kept(folder, game, jnp.ones(4))
    assert (folder / "letters").exists()
    (folder / "letters").unlink()
    assert len(files(folder)) == 3
    assert len(first.keys() & {path.name for path in files(folder)}) == 2
    before = files(folder)
    kept(folder, game, jnp.ones(1))
    assert files(folder) == before


def test_arguments_are_used_up_where_that_is_said(tmp_path: Path, game: Any) -> None:
    for donated in (0, 1):
        fresh = KeptPrograms(tmp_path / str(donated), {"somebodys_game"})
        args = jnp.ones(3), jnp.ones(3)
        fresh.kept(game.compute, donate=donated)(*args)
        assert [x.is_deleted() for x in args] == [donated == 0, donated == 1]


def trained(folder: Path | None) -> TrainState:
    kept = None if folder is None else KeptPrograms(folder, {"ppo_mask", "corridor"})
    env, config = Corridor(), PPOConfig(num_envs=4, num_steps=8, num_minibatches=2)
    model = MLPActorCritic(6, 3, 8, 1, key=jax.random.key(1))
    metrics = TASK.metrics
    state = init(env, model, config, jax.random.key(0), metrics=metrics, programs=kept)
    return train(env, state, config, 3, metrics=metrics, programs=kept)


def test_training_is_the_same_traced_kept_and_found(tmp_path: Path) -> None:
    traced = trained(None)
    assert eqx.tree_equal(trained(tmp_path), traced)
    assert look_at(tmp_path) == 2  # The first state's and the updates'.
    assert eqx.tree_equal(trained(tmp_path), traced)
    assert look_at(tmp_path) == 0


@pytest.fixture
def compilation_cache(tmp_path: Path) -> Iterator[Path]:
    """One of the test's own, with programs beside it that are not traced again."""
    name = "jax_compilation_cache_dir"
    before, folder = getattr(jax.config, name), tmp_path / "cache"
    jax.config.update(name, str(folder))
    yield folder
    jax.config.update(name, before)


def test_a_run_and_its_resumption_find_programs(tmp_path: Path, compilation_cache: Path) -> None:
    folder = compilation_cache / "programs"
    task = dataclasses.replace(TASK, packages=["corridor"])
    runs: list[RunFolder] = []

    def run(name: str, *flags: str) -> None:
        where = ["--checkpoint-dir", str(tmp_path), "--run-name", name]
        assert main(task, DEFAULTS, [*where, *flags]) == 0
        runs.append(RunFolder(tmp_path / name))

    run("traced", "--profile")
    assert files(folder) == []
    run("kept")
    assert look_at(folder) == 2
    run("found", "--total-timesteps", "160")
    more = ["--resume", str(runs[-1].path), "--total-timesteps", "192"]
    assert main(task, DEFAULTS, more) == 0
    assert look_at(folder) == 0
    assert_same_run(runs[1], runs[0])
    assert_same_run(runs[2], runs[0])


CORRIDOR = """
import dataclasses, sys
from corridor import DEFAULTS, TASK
from ppo_mask.run import main
task = dataclasses.replace(TASK, packages=sys.argv[1].split())
raise SystemExit(main(task, DEFAULTS, sys.argv[2:]))
"""


@pytest.mark.slow
def test_runs_on_several_devices_find_programs(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    several = {"JAX_NUM_CPU_DEVICES": "4", "JAX_COMPILATION_CACHE_DIR": str(cache)}
    sizes = ["--num-envs", "512", "--num-steps", "4", "--total-timesteps", "8192"]
    runs: list[RunFolder] = []
    for name, packages, written in (
        ("traced", "", 0),
        ("kept", "corridor", 2),
        ("found", "corridor", 0),
    ):
        where = ["--checkpoint-dir", str(tmp_path), "--run-name", name]
        done = subprocess.run(
            [sys.executable, "-c", CORRIDOR, packages, *where, *sizes],
            cwd=Path(__file__).parent,
            env={k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | several,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert "device  4 x cpu" in done.stdout
        assert look_at(cache / "programs") == written
        runs.append(RunFolder(tmp_path / name))
    assert_same_run(runs[1], runs[0])
    assert_same_run(runs[2], runs[0])


def test_a_file_that_names_other_things_is_not_used(tmp_path: Path, game: Any) -> None:
    folder, x = tmp_path / "programs", jnp.ones(3)
    kept(folder, game, x)
    [path] = files(folder)
    header, _, body = path.read_bytes().partition(b"\n")
    said = json.loads(header)
    for bad in (
        ["module", "os", "system", {}],
        ["module", "somebodys_game", "Settings", {}],
        ["module", "somebodys_game", "helper", {}],
        ["module", "equinox.nn", "Linear", {}],
        ["named", "somebodys_game", "Scale", []],
        ["leaf", 9],
        ["value", [1]],
        "text",
    ):
        path.write_bytes(sealed({**said, "structure": bad}, body))
        np.testing.assert_array_equal(kept(folder, game, x)["y"], 5)

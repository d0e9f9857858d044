"""Checkpoints: what comes back, what is kept, what is said when it does not fit."""

import json
import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from linux import only_linux
from ppo_mask.checkpoints import Checkpoint, RunDir, _orbax
from ppo_mask.checkpoints._checkpoint import named_arrays
from ppo_mask.errors import RunError
from same_run import assert_same


class Thing(eqx.Module):
    weight: jax.Array
    key: jax.Array
    empty: jax.Array
    flags: dict[str, jax.Array]
    name: str = "thing"
    function: Any = jnp.tanh


def thing(width: int = 3, seed: int = 0) -> Thing:
    return Thing(
        weight=jax.random.normal(jax.random.key(seed), (width, 2)),
        key=jax.random.split(jax.random.key(seed, impl="rbg"), 4),
        empty=jnp.zeros((0, 5), jnp.int8),
        flags={"reward/a": jnp.asarray(True), "half": jnp.asarray([1.5, jnp.nan], jnp.bfloat16)},
    )


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run")


def best_of(run: RunDir) -> int | None:
    best = run.best()
    return None if best is None else best.step


def test_everything_comes_back_bit_for_bit(run: RunDir) -> None:
    saved = run.save(7, thing(), {"config": {"lr": 1e-3}})
    for each in (saved, run.checkpoint(), RunDir(run.path).checkpoint(7)):
        assert each.path == run.path / "checkpoints/7"
        assert_same(each.restore(thing(seed=1)), thing())
        assert each.about["config"] == {"lr": 1e-3}
    files = [file for file in run.path.rglob("*") if file.is_file()]
    assert not [file for file in files if file.read_bytes().startswith(b"\x80")]  # A pickle.


def test_arrays_of_numpy_come_back_as_arrays_of_jax(run: RunDir) -> None:
    saved = run.save(1, {"x": np.ones(3, np.float32)})
    restored = saved.restore({"x": np.zeros(3, np.float32)})["x"]
    assert isinstance(restored, jax.Array)
    np.testing.assert_array_equal(restored, np.ones(3))


def test_keys_with_dots_do_not_mix_arrays_up(run: RunDir) -> None:
    tree = {
        "a": {"b": jnp.ones(1), "b#2": jnp.ones(2)},
        "a.b": jnp.ones(3),
        "a.b#2": jnp.ones(4),
        "plain.name": jnp.ones(5),
    }
    names = {"a.b": 1, "a.b#2": 2, "a.b#3": 3, "a.b#2#2": 4, "plain.name": 5}
    assert {name: x.size for name, x in named_arrays(tree).items()} == names
    saved = run.save(1, {"state": tree})
    assert_same(saved.restore({"state": tree}), {"state": tree})
    assert_same(saved.restore(tree, prefix="state."), tree)


def test_the_newest_and_the_best_are_kept(run: RunDir) -> None:
    scores = [0.0, None, 9.0, 2.0, None, 9.0, 3.0, 1.0, None]
    for step, score in enumerate(scores):
        run.save(step, jnp.zeros(()), {}, score)
    assert run.steps() == [5, 6, 7, 8]
    run = RunDir(run.path)  # The score is on disk, not in memory.
    run.save(9, jnp.zeros(()), {}, -1.0)
    assert run.steps() == [5, 7, 8, 9]


def test_discarding_and_cleaning(run: RunDir) -> None:
    run.clean()
    assert run.steps() == []
    for step in (1, 2, 3):
        run.save(step, jnp.zeros(()), {})
    run = RunDir(run.path)
    run.discard_after(1)
    assert run.steps() == [1]
    for name in (".saving-1/arrays", "2/arrays", "3", "4/of-somebody-else"):
        (run.path / "checkpoints" / name).mkdir(parents=True)
    assert run.steps() == [1]
    run.clean()
    assert sorted(p.name for p in (run.path / "checkpoints").iterdir()) == ["1", "4"]
    with pytest.raises(RunError, match=r"there is no checkpoint .*/3"):
        run.checkpoint(3)


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (thing(4), r"has float32\[3, 2\] for weight, this run asks for float32\[4, 2\]"),
        (
            eqx.tree_at(lambda t: t.flags, thing(), {"half": jnp.zeros(2, jnp.bfloat16)}),
            r"has bool\[\] for flags.reward/a, this run asks for nothing",
        ),
        (
            eqx.tree_at(lambda t: t.key, thing(), jax.random.split(jax.random.key(0), 4)),
            r"has key<rbg>\[4\] for key, this run asks for key<fry>\[4\]",
        ),
        ({"x": jnp.zeros(3)}, r"has nothing for x, this run asks for float32\[3\]"),
    ],
)
def test_a_misfit_is_named(run: RunDir, like: Any, message: str) -> None:
    saved = run.save(0, thing())
    with pytest.raises(RunError, match=message):
        saved.restore(like)


def _shorten_a_file(path: Path) -> None:
    largest = max((path / "arrays").glob("**/d/*"), key=lambda file: file.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)


def _describe(change: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda path: (file := path / "description.json").write_text(change(file.read_text()))


CHECKSUM = _describe(lambda text: re.sub(r'("weight": [^}]*"crc32": )\d+', r"\g<1>1", text))
FORMAT = _describe(lambda text: re.sub('"format": 3', '"format": 99', text))
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no arrays": (lambda path: shutil.rmtree(path / "arrays"), "is damaged: .+"),
    "a short file": (_shorten_a_file, "is damaged: .+"),
    "no json": (_describe(lambda _: "{"), "is damaged: .+"),
    "a list": (_describe(lambda _: "[1]"), "is damaged: .+"),
    "another checksum": (CHECKSUM, "is damaged: weight is not what was saved"),
    "another format": (FORMAT, "has format 99, this version of ppo_mask reads format 3"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_one_line(run: RunDir, damage: Callable[[Path], object], message: str) -> None:
    path = run.save(0, thing()).path
    damage(path)
    with pytest.raises(RunError, match=rf"checkpoint .*/0 {message}") as caught:
        Checkpoint.read(path).restore(thing())
    assert "\n" not in str(caught.value)


def test_what_a_description_lacks_is_one_line(run: RunDir) -> None:
    line = r"^checkpoint .*/0 is damaged: its description.json has no algorithm$"
    with pytest.raises(RunError, match=line):
        Checkpoint.read(run.save(0, thing()).path).about["algorithm"]


def test_a_description_is_json(run: RunDir) -> None:
    path = run.save(0, thing(), {}, math.inf).path
    about = json.loads((path / "description.json").read_text(), parse_constant=pytest.fail)
    assert about["score"] is None


def test_without_its_description_it_is_no_checkpoint(run: RunDir) -> None:
    path = run.save(0, thing(), {}, 9.0).path
    (path / "description.json").unlink()
    assert (run.steps(), run.best()) == ([], None)
    with pytest.raises(RunError, match=r"there is no checkpoint .*/0: it has no description.json"):
        Checkpoint.read(path)
    assert_same(run.save(0, thing(), {}).restore(thing(seed=1)), thing())


@pytest.mark.parametrize("name", ["a?b", "a b%20#{c}", "é\n", "~", "x" * 255, "a:b", "'$(x)\""])
def test_almost_any_path_holds_a_checkpoint(tmp_path: Path, name: str) -> None:
    (tmp_path / "axb").mkdir()  # What a pattern would match.
    run = RunDir(tmp_path / name)
    assert_same(run.save(3, thing(), {"n": 1}).restore(thing(seed=1)), thing())
    assert run.best() is None
    assert [path.name for path in (run.path / "checkpoints").iterdir()] == ["3"]


@pytest.mark.parametrize(
    "name", ["lr[1]", "a]", "a*", "**", "a\\b", "gs:", pytest.param("\udcff", marks=only_linux)]
)
def test_a_path_that_orbax_would_misread_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match=r"^checkpoints cannot be in .*: .* means something else"):
        RunDir(tmp_path / name)
    with pytest.raises(RunError, match=r"^checkpoints cannot be in .*: .* means something else"):
        Checkpoint.write(tmp_path / name / "policy", {}, {})
    assert not list(tmp_path.iterdir())


@only_linux  # Elsewhere, paths have fewer bytes.
def test_a_path_as_long_as_they_go_holds_a_checkpoint(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d" * 250] * 15)
    run = RunDir(deep / ("e" * (3980 - len(str(deep)))))
    assert_same(run.save(3, thing(), {}).restore(thing(seed=1)), thing())


def test_what_cannot_be_read_back_is_no_checkpoint(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.save(1, thing(), {})
    write = _orbax.write

    def torn(path: Path, *rest: Any) -> None:
        write(path, *rest)
        for file in path.glob("**/d/*"):
            file.write_bytes(b"")

    monkeypatch.setattr(_orbax, "write", torn)
    with pytest.raises(RunError, match=r"cannot save \S+/2: checkpoint \S+ is damaged"):
        run.save(2, thing(), {})
    assert [path.name for path in (run.path / "checkpoints").iterdir()] == ["1"]
    monkeypatch.undo()
    assert_same(run.save(2, thing(), {}).restore(thing(seed=1)), thing())


def test_a_policy_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    model = pm.MLPActorCritic(3, 2, hidden_dim=4, key=jax.random.key(0))
    with pytest.raises(RunError, match=r"cannot save \S+/file/policy: Not a directory$"):
        pm.save_policy(model, tmp_path / "file" / "policy")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([(5.0, False), (1.0, True), (9.0, False), (0.5, True)], 1),
        ([(math.nan, True), (1.0, False)], 1),
        ([(math.inf, True), (1.0, True)], 1),
        ([(math.nan, False), (math.nan, True)], None),
        ([(-math.inf, True), (1.0, False)], 1),
        ([(2.0, True), (2.0, True), (2.0, False)], 1),
    ],
)
def test_scores_of_one_kind_are_compared(
    run: RunDir, scores: list[tuple[float, bool]], best: int | None
) -> None:
    for step, (score, evaluated) in enumerate(scores):
        better = run.would_be_best(score, evaluated)
        run.save(step, jnp.zeros(()), {}, score, evaluated)
        assert (best_of(run) == step) == better
    assert best_of(run) == best


def test_a_damaged_checkpoint_is_not_the_best(run: RunDir) -> None:
    run.save(1, jnp.zeros(()), {}, 1.0)
    (run.save(0, jnp.zeros(()), {}, 9.0).path / "description.json").write_text("{")
    assert best_of(RunDir(run.path)) == 1

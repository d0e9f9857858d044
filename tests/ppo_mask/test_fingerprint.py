"""Whatever could have shaped a program makes it another one; nothing else does."""

import functools
import importlib
import importlib.metadata
import operator
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh
from somebodys import SOURCE, files, kept, look_at

from ppo_mask import _fingerprint
from ppo_mask.programs import KeptPrograms


def replaced(game: Any, name: str, value: Any) -> None:
    setattr(game, name, value)


CHANGES = {
    "a number": lambda game: replaced(game, "FACTOR", 2.5),
    "a number's type": lambda game: replaced(game, "FACTOR", 2),
    "an array's content": lambda game: game.TABLE.__setitem__(0, 1.0),
    "what a table holds": lambda game: game.NESTED["of"].append((1.0, {3.0})),
    "an object's field": lambda game: replaced(game.SETTINGS, "offset", 1.0),
    "a class's field": lambda game: replaced(game.Settings, "offset", 1.0),
    "a function by another": lambda game: replaced(game, "helper", game.plus(1.0)),
    "what a function closes over": lambda game: replaced(game, "more", game.plus(1.0)),
    "a compiled function": lambda game: replaced(game, "inner", jax.jit(game.plus(1.0))),
    "a cached function": lambda game: replaced(game, "more", functools.cache(game.helper)),
    "a method": lambda game: replaced(game.Scale, "__call__", game.plus(1.0)),
    "an attribute that is no field": lambda game: replaced(game.DERIVED, "b", 2.0),
    "a slot": lambda game: replaced(game.SLOTTED, "a", 2.0),
    "a function's attribute": lambda game: replaced(game.plus, "amount", 2.0),
    "an enumeration's value": lambda game: replaced(game.Kind.ONE, "_value_", 2),
    "a getter": lambda game: replaced(game, "PICK", operator.itemgetter(1)),
    "a bound method": lambda game: replaced(game, "LOOK_UP", {1: 3.0}.get),
    "a derivative": lambda game: game.smooth.defjvp(game.plus(1.0)),
    "a transformation": lambda game: replaced(game, "SLOPE", jax.grad(game.product, argnums=1)),
    "what is beside a function": lambda game: replaced(game.CALLER, "by", 2.0),
    "a cached property": lambda game: replaced(game.Caller.twice, "func", game.plus),
    "a namespace": lambda game: replaced(game.SPACE, "by", 2.0),
    "the midst of a long array": lambda game: game.SPACE.table.__setitem__(1500, 1.0),
    "a registered function": lambda game: game.reward.register(int)(game.plus),
    "a dictionary's attribute": lambda game: replaced(game.DICT, "scale", 2.0),
    "an item of a dictionary of its own": lambda game: game.DICT.__setitem__("a", 2.0),
    "a default factory": lambda game: replaced(game.DEFAULTS, "default_factory", int),
    "what is in a line": lambda game: game.LINE.append(2.0),
    "a member's attribute": lambda game: replaced(game.Tile.WALL, "reward", 2.0),
    "the mask of an array": lambda game: game.MASKED.mask.__setitem__(0, True),
    "an object in an array": lambda game: game.OBJECTS[0].append(2.0),
    "the only slot": lambda game: replaced(game.ONE_SLOT, "reward", 2.0),
    "a name of underscores": lambda game: replaced(game, "__HIDDEN", 2.0),
    "a method's part": lambda game: replaced(
        game.Moves, "go", functools.partialmethod(game.Moves._go, by=2.0)
    ),
    "a generator": lambda game: replaced(game, "RANDOM", np.random.default_rng(1)),
    "a weak type": lambda game: replaced(game, "STRONG", jnp.asarray(2.0)),
    "a class": lambda game: replaced(game, "Scale", type(game.made(1.0))),
    "a slice": lambda game: replaced(game, "SLICE", slice(2)),
    "a default": lambda game: replaced(game.helper, "__defaults__", (1.0,)),
    "a file": lambda game: Path(game.__file__).with_name("late.py").write_text("FACTOR = 1.0"),
    "a line of a file": lambda game: Path(game.__file__).write_text(SOURCE.replace("2.0", "7.0")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_changes_in_a_package_makes_another_program(
    change: Any, tmp_path: Path, game: Any
) -> None:
    folder, x = tmp_path / "programs", jnp.ones(3)
    kept(folder, game, x)
    assert look_at(folder) == 1
    kept(folder, game, x)
    assert look_at(folder) == 0
    change(game)
    kept(folder, game, x)
    assert look_at(folder) == 1
    kept(folder, game, x)
    assert look_at(folder) == 0


def test_modules_that_had_no_part_in_it_make_no_difference(tmp_path: Path, game: Any) -> None:
    folder, x = tmp_path / "programs", jnp.ones(3)
    (Path(game.__file__).with_name("late.py")).write_text("FACTOR = 1.0")
    kept(folder, game, x)
    assert look_at(folder) == 1
    late = importlib.import_module("somebodys_game.late")
    kept(folder, game, x)
    late.FACTOR = 2.0
    kept(folder, game, x)
    assert look_at(folder) == 0
    game.late = late.FACTOR
    kept(folder, game, x)
    assert look_at(folder) == 1


def test_modules_imported_while_tracing_count(tmp_path: Path, game: Any) -> None:
    folder, x = tmp_path / "programs", jnp.ones(3)
    (Path(game.__file__).with_name("late.py")).write_text("def plus(x):\n    return x + 4.0")
    np.testing.assert_array_equal(kept(folder, game, x, game.later)["y"], 9)
    sys.modules["somebodys_game.late"].plus = game.plus(5.0)
    np.testing.assert_array_equal(kept(folder, game, x, game.later)["y"], 10)
    assert look_at(folder) == 1
    # Whoever has not imported it finds what it was traced from, if that was as its file says.
    for written in (1, 0):
        del sys.modules["somebodys_game.late"], game.late
        np.testing.assert_array_equal(kept(folder, game, x, game.later)["y"], 9)
        assert look_at(folder) == written


def test_whatever_is_given_makes_another_program_but_an_arrays_content(
    tmp_path: Path, game: Any
) -> None:
    folder = tmp_path / "programs"
    calls: list[Any] = [
        (jnp.ones(3),),
        (jnp.ones(4),),
        (jnp.ones(3, jnp.int32),),
        (jnp.ones(3), jnp.ones(3)),
        (jnp.ones(3), np.ones(3)),
        (jnp.ones(3), {"mesh": Mesh(jax.devices()[:1], ("a",))}),
        (jnp.ones(3), {"mesh": Mesh(jax.devices()[:1], ("a",), (AxisType.Explicit,))}),
        (jnp.ones(3), "text"),
        (jnp.ones(3), game.plus(1.0)),
        (jnp.ones(3), game.plus(2.0)),
        (jnp.ones(3), game.plus(1)),
        (jnp.ones(3), game.Scale()),
        (jnp.ones(3), game.Scale(2.0)),
        (jnp.ones(3), functools.partial(game.helper, plus=1.0)),
        (jnp.ones(3), functools.partial(game.helper, plus=2.0)),
        (jnp.ones(3), jnp.sin),
        (jnp.ones(3), jax.nn.relu),
        (jax.device_put(jnp.ones(3), jax.devices()[0]), {"by": (None, jnp.ones(1))}),
        (jax.device_put(jnp.ones(3), jax.devices()[0]), {"by": (jnp.ones(1), None)}),
    ]
    for number, args in enumerate(calls):
        for content in (1.0, 2.0):
            args = jax.tree.map(
                lambda x, by=content: (x * by).astype(x.dtype) if eqx.is_array(x) else x, args
            )
            expected = game.compute(*args)
            assert eqx.tree_equal(kept(folder, game, *args), expected)
            assert len(files(folder)) == number + 1


def test_a_class_of_a_function_is_told_by_what_that_made_it_from(tmp_path: Path, game: Any) -> None:
    for by in (2.0, 3.0):
        game.Scale = type(game.made(by))
        kept(tmp_path / "programs", game, jnp.ones(3))
        assert look_at(tmp_path / "programs") == 1


def test_another_version_of_a_library_makes_another_program(
    tmp_path: Path, game: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    folder, x = tmp_path / "programs", jnp.ones(3)
    kept(folder, game, x)
    assert look_at(folder) == 1
    versions = importlib.metadata.version
    newer = {game.optax.__name__: "99"}
    monkeypatch.setattr(importlib.metadata, "version", lambda x: newer.get(x) or versions(x))
    _fingerprint._version_of_installed.cache_clear()
    request.addfinalizer(_fingerprint._version_of_installed.cache_clear)
    kept(folder, game, x)
    assert look_at(folder) == 1


FROM_ELSEWHERE = {
    "a module": "import {0}\n\ndef compute(x):\n    return x + {0}.AMOUNT",
    "in a function": "def compute(x):\n    from {0} import AMOUNT\n    return x + AMOUNT",
    "within": "def compute(x):\n    def f():\n        import {0}\n        return {0}.AMOUNT\n"
    "    return x + f()",
}


@pytest.mark.parametrize("source", FROM_ELSEWHERE.values(), ids=FROM_ELSEWHERE)
def test_what_uses_a_package_not_named_is_not_kept(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "somebodys_rules.py").write_text("AMOUNT = 1.0")
    (tmp_path / "somebodys_play.py").write_text(source.format("somebodys_rules"))
    monkeypatch.syspath_prepend(tmp_path)
    play = importlib.import_module("somebodys_play")
    try:
        programs = KeptPrograms(tmp_path / "programs", ["somebodys_play"])
        np.testing.assert_array_equal(programs.kept(eqx.filter_jit(play.compute))(jnp.ones(3)), 2)
        assert files(tmp_path / "programs") == []
        both = KeptPrograms(tmp_path / "programs", ["somebodys_play", "somebodys_rules"])
        np.testing.assert_array_equal(both.kept(eqx.filter_jit(play.compute))(jnp.ones(3)), 2)
        assert len(files(tmp_path / "programs")) == 1
    finally:
        for name in {"somebodys_play", "somebodys_rules"} & sys.modules.keys():
            del sys.modules[name]


def test_settings_of_jax_make_another_program(tmp_path: Path, game: Any) -> None:
    folder, x = tmp_path / "programs", jnp.ones(3)
    kept(folder, game, x)
    with jax.default_matmul_precision("highest"):
        kept(folder, game, x)
    assert len(files(folder)) == 2
    with jax.set_mesh(Mesh(jax.devices()[:1], ("a",))):
        kept(folder, game, x)
    assert len(files(folder)) == 3


def test_how_much_is_logged_makes_no_difference(tmp_path: Path, game: Any) -> None:
    folder, x = tmp_path / "programs", jnp.ones(3)
    for level in ("ERROR", "INFO"):
        game.LOG.setLevel(level)
        kept(folder, game, x)
    assert look_at(folder) == 1
    game.LOG.setLevel("ERROR")
    kept(folder, game, x)
    assert look_at(folder) == 0

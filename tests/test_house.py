"""The layers, the faces of the rooms, and how much is in them."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import ppo_mask
from source import SOURCE, imports

GROUND = {"jax_tools", "errors"}
ENVS = {"envs", "devices"} | GROUND
MODELS = {"networks"} | ENVS
LAYERS = {
    "errors": set[str](),
    "_typecheck": set[str](),
    "jax_tools": {"_typecheck", "errors"},
    "envs": GROUND,
    "devices": GROUND,
    "networks": ENVS,
    "adapters": MODELS,
    "checkpoints": MODELS,
    "ppo": MODELS,
    "training": MODELS | {"checkpoints", "ppo"},
    "callbacks": MODELS | {"checkpoints", "ppo", "training"},
    "runner": MODELS | {"checkpoints", "ppo", "training", "callbacks"},
}
"""What each room of ``ppo_mask`` may import, beside itself."""

ROOMS = sorted(LAYERS.keys() - {"errors", "_typecheck"})
HEAVY = {"jax", "rich", "tensorboardX", "yaml", "orbax", "fsspec", "wandb", "optax", "equinox"}


def python_files(package: str) -> list[Path]:
    return sorted((SOURCE / package).rglob("*.py"))


def wrong_imports(path: Path) -> list[str]:
    """The imports of a file of ``ppo_mask`` that go up, or to the side, or through a back door."""
    here = path.relative_to(SOURCE / "ppo_mask").parts[0].removesuffix(".py")
    wrong: list[str] = []
    for module, name in imports(path):
        package, *rest = module.split(".")
        if package == "hackmatrix":
            wrong.append(module)
        if package != "ppo_mask":
            continue
        room, *inside = rest or [name]
        private = [part for part in (*inside, name) if part.startswith("_") and part != "__all__"]
        if room != here and (room not in LAYERS[here] or private):
            wrong.append(f"{module}: {name}")
    return wrong


@pytest.mark.parametrize("room", LAYERS)
def test_rooms_import_what_is_below_them(room: str) -> None:
    path = SOURCE / "ppo_mask" / room
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
        assert wrong_imports(file) == [], file


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("ppo", "from ppo_mask.training import train"),
        ("envs", "def later():\n    from ppo_mask.networks import Policy"),
        ("networks", "import hackmatrix"),
        ("training", "from ppo_mask.ppo._update import update"),
        ("envs", "from ..training import train"),
        ("jax_tools", "from ppo_mask import envs"),
    ],
)
def test_a_wrong_import_is_found(room: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SOURCE / "ppo_mask" / room / "_made_up.py"
    monkeypatch.setattr(Path, "read_text", lambda path: line)
    assert wrong_imports(file) != []


def test_each_name_has_one_home() -> None:
    homes: dict[int, str] = {}
    for room in ROOMS:
        module = importlib.import_module(f"ppo_mask.{room}")
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            assert homes.setdefault(id(value), room) == room, name
    face = [name for name in ppo_mask.__all__ if name not in (*ROOMS, "__version__")]
    assert {id(getattr(ppo_mask, name)) for name in face} <= homes.keys()


def test_type_checkers_see_the_face_that_programs_get() -> None:
    tree = ast.parse((SOURCE / "ppo_mask" / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = [
        alias.asname or alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted([*seen, "__version__"]) == sorted(ppo_mask.__all__)


def test_an_import_of_the_library_loads_nothing_heavy() -> None:
    program = "import sys, ppo_mask; ppo_mask.__version__; print(*sys.modules)"
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert HEAVY & set(printed.split()) == set()


def test_learning_without_the_runner_loads_no_console_and_no_logs() -> None:
    program = (
        "import sys, ppo_mask as pm; pm.Trainer, pm.evaluate, pm.check_env; print(*sys.modules)"
    )
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert {"rich", "tensorboardX", "yaml", "orbax", "fsspec"} & set(printed.split()) == set()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'ppo_mask' has no attribute 'PPOConfg'"):
        _ = ppo_mask.PPOConfg  # pyright: ignore


@pytest.mark.parametrize("package", ["ppo_mask", "hackmatrix"])
def test_files_and_rooms_are_small(package: str) -> None:
    for path in python_files(package):
        assert len(path.read_text().splitlines()) <= 400, path
    if package == "ppo_mask":
        entries = [path for path in (SOURCE / package).iterdir() if path.name != "__pycache__"]
        assert len(entries) <= 14
        for room in ROOMS:
            assert len(list((SOURCE / package / room).glob("*.py"))) <= 14, room


@pytest.mark.parametrize("package", ["ppo_mask", "hackmatrix"])
def test_no_types_are_checked_in_what_python_calls_anywhere(package: str) -> None:
    """Handlers of signals and of lost errors: whom they interrupt may hold beartype's lock."""
    checked = [
        f"{path.relative_to(SOURCE)}: {node.name}"
        for path in python_files(package)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and any(
            "FrameType" in ast.unparse(x.annotation or x) or x.arg == "unraisable"
            for x in node.args.args
        )
        and "no_type_check" not in map(ast.unparse, node.decorator_list)
    ]
    assert checked == []

"""The layers, the faces of the rooms, and how much is in them."""

import ast
import importlib
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import ppo_mask
from source import ROOT, SOURCE, imports

GROUND = {"jax_tools", "errors"}
ENVS = {"envs", "devices"} | GROUND
MODELS = {"networks"} | ENVS
ALGORITHMS = {"acting", "checkpoints", "games"} | MODELS
GAME = {"rules", "actions", "observation", "env"}
LAYERS = {
    "ppo_mask": {
        "errors": set[str](),
        "_typecheck": set[str](),
        "jax_tools": {"_typecheck", "errors"},
        "envs": GROUND,
        "devices": GROUND,
        "networks": ENVS,
        "games": MODELS,
        "adapters": {"games"} | MODELS,
        "acting": MODELS,
        "checkpoints": MODELS,
        "search": {"acting"} | MODELS,
        "export": {"acting", "checkpoints"} | MODELS,
        "training": ALGORITHMS | {"search"},
        "ppo": ALGORITHMS | {"training"},
        "callbacks": ALGORITHMS | {"training"},
        "runner": ALGORITHMS | {"search", "training", "ppo", "callbacks", "export"},
        "__main__": {"runner"},
    },
    "hackmatrix": {
        "rules": set[str](),
        "actions": {"rules"},
        "observation": {"rules"},
        "imagination": {"rules", "observation"},
        "env": {"rules", "actions", "observation", "imagination"},
        "curriculum": GAME,
        "positions": GAME,
        "networks": GAME,
        "render": GAME | {"positions"},
        "task": GAME | {"curriculum", "networks"},
        "play": GAME | {"networks", "render", "task"},
        "_registration": set[str](),
        "gymnasium": GAME | {"render", "_registration"},
        "cli": GAME | {"networks", "render", "task", "play"},
        "__init__": {"env", "render", "rules", "_registration"},
        "__main__": {"cli"},
    },
}
"""What each room of a package may import of it, beside itself; none has a circle."""

OF_THE_LIBRARY = {"rules": {"envs", "jax_tools"}}
"""What rooms of the game may import of ``ppo_mask``; those that are not named, all."""

NO_ROOMS = {"__pycache__", "py", "presets", "champion"}
ROOMS = sorted(LAYERS["ppo_mask"].keys() - {"errors", "_typecheck", "__main__"})
HEAVY = {"jax", "rich", "tensorboardX", "yaml", "orbax", "fsspec", "wandb", "optax", "equinox"}


def python_files(package: str) -> list[Path]:
    return sorted((SOURCE / package).rglob("*.py"))


def wrong_imports(path: Path) -> list[str]:
    """A file's imports that go up or to the side, or from the game through a back door."""
    ours, here = path.relative_to(SOURCE).with_suffix("").parts[:2]
    wrong: list[str] = []
    for module, name in imports(path):
        package, *rest = module.split(".")
        if package not in LAYERS:
            continue
        room, *inside = rest or [name]
        private = [part for part in (*inside, name) if part.startswith("_") and part != "__all__"]
        if package == ours:
            fine = room == here or room in LAYERS[ours][here]
        else:
            fine = ours == "hackmatrix" and room in OF_THE_LIBRARY.get(here, {room}) and not private
        if not fine:
            wrong.append(f"{module}: {name}")
    return wrong


@pytest.mark.parametrize("package", LAYERS)
def test_rooms_import_what_is_below_them(package: str) -> None:
    entries = {path.stem for path in (SOURCE / package).iterdir()} - NO_ROOMS
    assert entries - {"__init__"} == LAYERS[package].keys() - {"__init__"}
    for file in python_files(package):
        if file != SOURCE / "ppo_mask" / "__init__.py":
            assert wrong_imports(file) == [], file


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("ppo_mask/envs", "def later():\n    from ppo_mask.networks import Policy"),
        ("ppo_mask/networks", "import hackmatrix"),
        ("ppo_mask/training", "from ppo_mask.ppo import PPO"),
        ("hackmatrix/rules", "from hackmatrix import HackMatrix"),
        ("hackmatrix/rules", "from ppo_mask.training import Trainer"),
        ("hackmatrix/networks", "from ..task import TASK"),
    ],
)
def test_a_wrong_import_is_found(room: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: line)
    assert wrong_imports(SOURCE / room / "_made_up.py") != []


def test_each_name_has_one_home() -> None:
    homes: dict[int, str] = {}
    for room in ROOMS:
        module = importlib.import_module(f"ppo_mask.{room}")
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            assert homes.setdefault(id(value), room) == room, name
    face = [name for name in ppo_mask.__all__ if name not in (*ROOMS, "__version__")]
    assert {id(getattr(ppo_mask, name)) for name in face} <= homes.keys()


def test_public_names_are_for_users() -> None:
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.py"), ROOT / "README.md"]
    words = {
        word
        for page in (*pages, *python_files("hackmatrix"))
        for word in re.findall(r"\w+", page.read_text(encoding="utf-8"))
    }
    for room in ROOMS:
        names = getattr(importlib.import_module(f"ppo_mask.{room}"), "__all__", ())
        assert [name for name in names if name not in words] == [], room


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


def test_a_use_of_the_library_loads_no_more_than_it_needs() -> None:
    later = "pm.Trainer, pm.evaluate, pm.check_env"
    program = f"import sys, ppo_mask as pm; print(*sys.modules); {later}; print(*sys.modules)"
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    first, then = (set(line.split()) for line in printed.splitlines())
    assert HEAVY & first == set()
    assert HEAVY & then <= {"jax", "wandb", "optax", "equinox"}


@pytest.mark.parametrize(
    ("there", "refused"), [("0.9.30", True), ("0.10", False), ("0.10.2.dev1", False), ("1", False)]
)
def test_a_dependency_that_is_too_old_is_refused(
    there: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = (
        "Requires-Dist: jax>=0.10.0\nRequires-Dist: absent>=1\nRequires-Dist: jax>=9; extra == 'x'"
    )
    for name, version, more in (("ppo-mask", "0.1.0", needs), ("jax", there, "")):
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n{more}\n")
    monkeypatch.syspath_prepend(tmp_path)
    message = "^ppo-mask needs jax>=0.10.0, and jax 0.9.30 is installed; pip install 'jax>=0.10.0'"
    with pytest.raises(ImportError, match=message) if refused else nullcontext():
        ppo_mask._check_versions()  # pyright: ignore[reportPrivateUsage]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'ppo_mask' has no attribute 'PPOConfg'"):
        _ = ppo_mask.PPOConfg  # pyright: ignore


@pytest.mark.parametrize("package", ["ppo_mask", "hackmatrix"])
def test_no_types_are_checked_in_what_python_calls_anywhere(package: str) -> None:
    """Handlers of signals: whom they interrupt may hold beartype's lock."""
    handlers = {
        f"{path.relative_to(SOURCE)}: {node.name}": [*map(ast.unparse, node.decorator_list)]
        for path in python_files(package)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and any("FrameType" in ast.unparse(x.annotation or x) for x in node.args.args)
    }
    assert handlers
    assert [name for name, marks in handlers.items() if "no_type_check" not in marks] == []

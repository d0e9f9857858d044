"""What each room of the game may import of the game and of the library."""

from pathlib import Path

import pytest

from source import SOURCE, imports

RULES = {"rules"}
GAME = RULES | {"actions", "observation", "env"}
LAYERS = {
    "rules": set[str](),
    "actions": RULES,
    "observation": RULES,
    "env": RULES | {"actions", "observation"},
    "metrics": GAME,
    "curriculum": GAME,
    "positions": GAME,
    "networks": GAME,
    "render": GAME | {"positions"},
    "task": GAME | {"metrics", "curriculum", "networks"},
    "play": GAME | {"networks", "render", "task"},
    "gymnasium": GAME | {"render"},
    "cli": GAME | {"networks", "render", "task", "play"},
    "__init__": {"env", "render", "rules"},
    "__main__": {"cli"},
}
"""What each room of ``hackmatrix`` may import, beside itself; none has a circle."""

DATA = ("presets", "champion")
"""Folders without code."""

LIBRARY = {"rules": {"envs", "jax_tools"}}
"""What the rooms named may import of ``ppo_mask``; the others may import all."""


def wrong_imports(path: Path) -> list[str]:
    here = path.relative_to(SOURCE / "hackmatrix").parts[0].removesuffix(".py")
    known = {entry.stem for entry in (SOURCE / "hackmatrix").iterdir()}
    wrong: list[str] = []
    for module, name in imports(path):
        package, *rest = module.split(".")
        room = rest[0] if rest else name
        if package == "hackmatrix":
            # What is no file or folder is a name that hackmatrix's own face has: from above.
            allowed = room in LAYERS[here] or (room == here and room in known)
        else:
            allowed = package != "ppo_mask" or room in LIBRARY.get(here, {room})
        if not allowed:
            wrong.append(f"{module}: {name}")
    return wrong


@pytest.mark.parametrize("room", LAYERS)
def test_rooms_import_what_is_below_them(room: str) -> None:
    path = SOURCE / "hackmatrix" / room
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
        assert wrong_imports(file) == [], file


def test_every_room_is_in_the_layers() -> None:
    entries = (SOURCE / "hackmatrix").iterdir()
    assert {path.stem for path in entries if path.stem not in ("__pycache__", "py", *DATA)} == {
        *LAYERS
    }


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("rules", "from hackmatrix.env import HackMatrix"),
        ("rules", "from hackmatrix import HackMatrix"),
        ("rules", "from ppo_mask.training import Trainer"),
        ("render", "def later():\n    from hackmatrix.play.replay import watch"),
        ("networks", "from ..task import TASK"),
        ("play", "import hackmatrix.cli.watch"),
    ],
)
def test_a_wrong_import_is_found(room: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: line)
    assert wrong_imports(SOURCE / "hackmatrix" / room / "made_up.py") != []

"""Presets: settings that go together, as YAML files with comments that say why."""

from pathlib import Path

from ppo_mask.errors import RunError
from ppo_mask.runner._schema import did_you_mean


def preset_file(folder: Path | None, name: str | None) -> Path | None:
    """The file of a preset.

    Args:
        folder: of the program's presets; None if it has none.
        name: the preset; None for no preset.

    Raises:
        RunError: there is no such preset.
    """
    if name is None:
        return None
    names = _names(folder)
    if folder is None or name not in names:
        there = f"; there are {', '.join(names)}" if names else ": this program has none"
        raise RunError(f"there is no preset {name}{did_you_mean(str(name), names)}{there}")
    return folder / f"{name}.yaml"


def describe_presets(folder: Path | None) -> str:
    """The presets as ``--help`` prints them, comments and all; empty if there are none."""
    texts = [
        f"preset {name}:\n" + _indented((folder / f"{name}.yaml").read_text(encoding="utf-8"))
        for name in _names(folder)
        if folder is not None
    ]
    return "\n\n".join(texts)


def _names(folder: Path | None) -> list[str]:
    return [] if folder is None else sorted(path.stem for path in folder.glob("*.yaml"))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.strip().splitlines())

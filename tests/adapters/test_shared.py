"""What all adapters do: errors that say what to install, and wrappers around them."""

import subprocess
import sys
from unittest.mock import Mock

import pytest

from ppo_mask.adapters._shared import import_library, make_named, make_timestep
from ppo_mask.errors import RunError

LIBRARIES = {
    "gymnax": "GymnaxEnv",
    "jumanji": "JumanjiEnv",
    "navix": "NavixEnv",
    "pettingzoo": "PettingZooEnv",
    "pgx": "PgxGame",
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_missing_library_is_named_with_its_extra(library, monkeypatch):
    adapter = getattr(
        __import__(f"ppo_mask.adapters.{library}", fromlist=["_"]), LIBRARIES[library]
    )
    monkeypatch.setitem(sys.modules, library, None)  # As if it were not installed.
    with pytest.raises(RunError, match=rf"pip install 'ppo-mask\[{library}\]', or 'ppo-mask\[ad"):
        adapter(dict if library == "pettingzoo" else "anything")


PACKAGES = {
    "ppo_mask.adapters.from_gymnasium": "gymnasium",
    "ppo_mask.adapters.to_gymnasium": "gymnasium",
    "ppo_mask.adapters.to_gymnasium_vector": "gymnasium",
    "hackmatrix.gymnasium": "gymnasium",
    "ppo_mask.adapters.to_gymnax": "gymnax",
    "ppo_mask.adapters.pettingzoo": "gymnasium",
}


def test_libraries_are_imported_when_needed_and_missing_ones_named():
    program = f"""
import importlib, sys
for library in {sorted(LIBRARIES.keys() - {"pettingzoo"})}:  # Imports gymnasium, as it must.
    importlib.import_module("ppo_mask.adapters." + library)
print(sorted({set(LIBRARIES)!r} & set(sys.modules)))
sys.modules["gymnasium"] = sys.modules["gymnax"] = None
for module in {list(PACKAGES)}:
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    imported, *lines = done.stdout.splitlines()
    assert imported == "[]"
    assert len(lines) == len(PACKAGES), done.stderr
    for line, package in zip(lines, PACKAGES.values(), strict=True):
        assert "cannot be imported" in line
        assert line.endswith(f"install it with pip install 'ppo-mask[{package}]'")


def test_mask_allows_something():
    def allowed(mask, terminated, truncated):
        return make_timestep(0.0, mask, 0.0, terminated, truncated, {}).action_mask.tolist()

    assert allowed([True, False], False, False) == [True, False]
    assert allowed([True, False], True, False) == allowed([True, False], True, True) == [True] * 2
    assert allowed([True, False], False, True) == [True, False]
    assert allowed([False, False], False, False) == allowed([False] * 2, False, True) == [True] * 2


def test_a_name_that_is_unknown_or_cannot_be_downloaded_is_one_line():
    def offline(name):
        raise ConnectionError("Temporary failure in name resolution\nmore")

    for error, said in (
        (KeyError("no go"), "'no go'"),
        (ValueError("no go\nbut these: ..."), "no go"),  # A KeyError's text is a repr.
    ):
        line = f"^chess-library cannot make an environment go: {said}$"
        with pytest.raises(ValueError, match=line):
            make_named(Mock(side_effect=error), "chess-library", "go")
    line = r"downloads what go needs .*failed \(Temporary failure in name resolution\); make"
    with pytest.raises(RunError, match=line):
        make_named(offline, "chess-library", "go")


def test_a_library_that_cannot_be_imported_is_one_line(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "old_games.py").write_text("import numpy\nnumpy.bool8\n")
    line = "^old_games is installed, and fails when it is imported: AttributeError: .*bool8"
    with pytest.raises(RunError, match=line):
        import_library("old_games")

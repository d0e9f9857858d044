"""A package of somebody's that is there for a test."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from somebodys import SOURCE


@pytest.fixture
def game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    package = tmp_path / "somebodys" / "somebodys_game"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(package.parent)
    yield importlib.import_module(package.name)
    for name in [name for name in sys.modules if name.startswith(package.name)]:
        del sys.modules[name]

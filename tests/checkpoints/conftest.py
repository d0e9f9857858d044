"""A machine and an empty bucket."""

from pathlib import Path

import pytest

from memory_bucket import empty_bucket


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local folder of the runs in the bucket, which is empty."""
    return empty_bucket(monkeypatch, tmp_path / "one")

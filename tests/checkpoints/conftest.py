"""A machine and an empty bucket, and what an undisturbed run becomes."""

from pathlib import Path

import pytest

from memory_bucket import begin, empty_bucket
from ppo_mask.checkpoints import RunFolder


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local folder of the runs in the bucket, which is empty."""
    return empty_bucket(monkeypatch, tmp_path / "one")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of 12 updates."""
    parent = tmp_path_factory.mktemp("whole")
    assert begin(12, url=str(parent)) == 0
    return RunFolder(parent / "run")

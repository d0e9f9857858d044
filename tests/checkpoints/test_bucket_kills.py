"""Whatever moment a process is killed at, the bucket has a run that goes on."""

import itertools
import shutil
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from memory_bucket import (
    URL,
    Killed,
    Objects,
    assert_in_step,
    begin,
    go_on,
    kill_at,
    manifest,
    objects,
    set_objects,
    use_machine,
)
from ppo_mask.checkpoints import RunFolder, Storage, open_storage
from ppo_mask.checkpoints._manifest import Manifest
from same_run import assert_same_run, log

pytestmark = pytest.mark.usefixtures("machine")


def moments(machine: Path, patch: pytest.MonkeyPatch, into: Path) -> list[RunFolder]:
    """What the folder of a run was whenever it was to be copied; the bucket has its name only."""
    found: list[RunFolder] = []
    push = Storage.push

    def remember(storage: Storage, folder: RunFolder) -> None:
        if folder.checkpoints.newest() is None:  # Its name is claimed.
            push(storage, folder)
            return
        found.append(RunFolder(shutil.copytree(folder.path, into / f"moment{len(found)}")))

    with patch.context() as inner:
        inner.setattr(Storage, "push", remember)
        assert begin(8) == 0
    return found


def push_killed_at(n: int, folder: RunFolder, patch: pytest.MonkeyPatch) -> bool:
    with patch.context() as inner:
        kill_at(inner, n)
        try:
            open_storage(URL).push(folder)
        except Killed:
            return True
    return False


def pulled_elsewhere(patch: pytest.MonkeyPatch, home: Path) -> RunFolder:
    with patch.context() as inner:
        shutil.rmtree(use_machine(inner, home), ignore_errors=True)
        return RunFolder(open_storage(URL).pull("run"))


@pytest.mark.optimized
def test_a_kill_at_any_operation_leaves_a_run_that_goes_on(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begin(12, url=str(tmp_path / "whole")) == 0
    uninterrupted = RunFolder(tmp_path / "whole" / "run")
    folder, saved = RunFolder(machine / "run"), dict[str, str]()
    outcomes: dict[tuple[int, ...], Objects] = {}
    kills, steps = 0, list[int]()
    # Each push is made again and again: killed at its first operation, its second, and so on.
    for moment in moments(machine, monkeypatch, tmp_path):
        marker, before = (folder.path / ".bucket.json").read_text(), objects()
        saved |= Manifest.of(moment.path).files
        last = steps
        for n in itertools.count():
            set_objects(before)
            shutil.rmtree(folder.path)
            shutil.copytree(moment.path, folder.path)
            (folder.path / ".bucket.json").write_text(marker)
            killed = push_killed_at(n, folder, monkeypatch)
            there = pulled_elsewhere(monkeypatch, tmp_path / "other")
            steps, files = there.checkpoints.steps(), Manifest.of(there.path).files
            assert steps == manifest().steps
            assert steps in (last, moment.checkpoints.steps())
            for path, checksum in files.items():
                assert saved[path] == checksum or not path.startswith("checkpoints/")
            outcomes.setdefault((len(log(there)) if steps else 0, *steps), objects())
            if not killed:
                break
            kills += 1
        assert steps == moment.checkpoints.steps()
        assert_in_step(folder)
    assert kills > 80
    # Nothing but a name; four times new checkpoints, with the log of before or with a newer one.
    assert len(outcomes) == 8
    for (_, *steps), bucket in outcomes.items():
        if steps:
            set_objects(bucket)
            there = pulled_elsewhere(monkeypatch, tmp_path / "other")
            use_machine(monkeypatch, tmp_path / "other")
            assert go_on(12) == 0
            assert_same_run(there, uninterrupted)
            assert_in_step(there)
            use_machine(monkeypatch, tmp_path / "one")


@pytest.mark.slow
def test_a_kill_within_a_manifest_in_a_folder_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{tmp_path}/bucket/runs"
    assert begin(4, url=url) == 0

    def write_half(self: LocalFileSystem, path: str, value: bytes) -> None:
        Path(path).write_bytes(value[: len(value) // 2])
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "pipe_file", write_half)
        with pytest.raises(Killed):
            go_on(8, run=f"{url}/run")
    found = open_storage(url).manifest("run")
    assert found is not None
    assert found.steps[-1] == 4
    assert go_on(8, run=f"{url}/run") == 0
    found = open_storage(url).manifest("run")
    assert found is not None
    assert found.steps[-1] == 8
    assert not [*tmp_path.glob("bucket/runs/run/*.new")]

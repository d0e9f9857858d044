"""Runs in a bucket that are wound back: nothing is lost there before something new is saved."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from memory_bucket import (
    URL,
    WRITES,
    Killed,
    assert_in_step,
    begin,
    go_on,
    intercept,
    remote,
    use_machine,
)
from ppo_mask.checkpoints import CheckpointStore, RunFolder, open_storage
from same_run import assert_same_run, log

Output = pytest.CaptureFixture[str]


pytestmark = pytest.mark.usefixtures("machine")


def test_an_older_checkpoint_is_gone_on_from_with_rewind(
    machine: Path, uninterrupted: RunFolder, capsys: Output
) -> None:
    assert begin(10) == 0
    shutil.rmtree(machine)
    assert go_on(12, run=f"{URL}/run/checkpoints/8") == 2
    assert "add --rewind" in capsys.readouterr().err
    assert go_on(12, run=f"{URL}/run/checkpoints/7") == 2
    said = f"there is no checkpoint {URL}/run/checkpoints/7; the run's are: 6, 8, 10\n"
    assert said in capsys.readouterr().err
    assert go_on(12, "--rewind", run=f"{URL}/run/checkpoints/8") == 0
    assert_same_run(RunFolder(machine / "run"), uninterrupted)
    assert_in_step(RunFolder(machine / "run"))


@pytest.mark.slow
@pytest.mark.parametrize("at", ["config.yaml", "checkpoints/8", "metrics.jsonl", "manifest.json"])
def test_a_kill_after_winding_back_leaves_no_later_checkpoint(
    machine: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    assert begin(10) == 0
    before = remote()
    rewound = False

    def die(name: str, path: str) -> None:
        nonlocal rewound
        if rewound and f"run/{at}" in path:
            raise Killed
        rewound |= path.endswith("manifest.json")

    with monkeypatch.context() as patch:
        intercept(patch, WRITES, die)
        with pytest.raises(Killed):
            go_on(12, "--rewind", "--lr", "0.1", run=f"{URL}/run/checkpoints/6")
    shutil.rmtree(machine)
    folder = RunFolder(open_storage(URL).pull("run"))
    assert folder.checkpoints.steps() == [6]
    assert before.items() >= {
        (path, content) for path, content in remote().items() if path.startswith("checkpoints/6/")
    }
    assert go_on(8, "--lr", "0.1") == 0
    assert [x["update"] for x in log(folder) if "train/lr" in x] == [3, 6, 8]
    assert_in_step(folder)


@pytest.mark.slow
def test_a_kill_before_anything_is_saved_leaves_what_was_wound_back(
    tmp_path: Path, machine: Path, uninterrupted: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begin(10) == 0
    before = remote()
    rewind = ("--rewind", "--lr", "0.1")

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    for step in (6, 8):  # The second time it is wound back from where the kill left it.
        with monkeypatch.context() as patch:
            patch.setattr(CheckpointStore, "save", die)
            with pytest.raises(Killed):
                go_on(12, *rewind, run=f"{URL}/run/checkpoints/{step}")
        assert RunFolder(machine / "run").checkpoints.steps() == [x for x in (6, 8) if x <= step]
        assert remote() == before
    with monkeypatch.context() as patch:
        there = use_machine(patch, tmp_path / "two") / "run"
        assert RunFolder(open_storage(URL).pull("run")).checkpoints.steps() == [6, 8, 10]
        assert there.is_dir()
    assert go_on(12) == 0
    assert_same_run(RunFolder(machine / "run"), uninterrupted)
    assert_in_step(RunFolder(machine / "run"))


def test_a_rewind_under_way_is_left_alone_by_who_looks(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begin(10) == 0
    before = remote()
    seen: list[list[int]] = []
    rewind = RunFolder.rewind

    def look(folder: RunFolder, step: int) -> None:
        rewind(folder, step)
        open_storage(URL).push(folder)
        assert remote() == before
        seen.append(RunFolder(open_storage(URL).pull("run")).checkpoints.steps())

    monkeypatch.setattr(RunFolder, "rewind", look)
    assert go_on(8, "--rewind", run=f"{URL}/run/checkpoints/6") == 0
    assert seen == [[6]]
    assert RunFolder(machine / "run").checkpoints.steps() == [6, 8]
    assert_in_step(RunFolder(machine / "run"))

"""What of a bucket is refused, in which words, and that nothing is written then."""

import errno
import json
import shutil
import sys
from pathlib import Path

import pytest

from corridor import DEFAULTS, TASK
from memory_bucket import URL, assert_in_step, begin, intercept, objects, remote, set_objects
from ppo_mask.checkpoints import RunFolder, open_storage
from ppo_mask.checkpoints._manifest import Manifest
from ppo_mask.errors import RunError
from ppo_mask.runner import main

Output = pytest.CaptureFixture[str]


pytestmark = pytest.mark.usefixtures("machine")


REFUSED = [
    ("--checkpoint-dir gs://b/runs", "gs:// needs a package that is not installed: pip install "),
    ("--resume gs://b/runs/run", "pip install 'ppo-mask[gcs]'"),
    ("--resume latest --checkpoint-dir s3://b/runs", "pip install 'ppo-mask[s3]'"),
    ("--checkpoint-dir xyz://b/runs", "xyz://b/runs: there is no xyz://; gs:// and s3:// are"),
    ("--checkpoint-dir memory://", "is not the URL of a folder of runs, such as gs://bucket/runs"),
    ("--checkpoint-dir memory://b/../../x", "is not the URL of a folder of runs"),
    (
        "--checkpoint-dir memory://b::c/runs",
        "b::c/runs is a chain of URLs; give one URL without ::",
    ),
    (
        "--resume latest --checkpoint-dir simplecache::memory://b/x",
        "b/x is a chain of URLs; give one URL without ::",
    ),
    (
        "--resume memory://run",
        "memory://run is not the URL of a run, such as gs://bucket/runs/NAME",
    ),
    ("--resume memory://b/runs/none", "there is no run memory://b/runs/none"),
    # A path is no run's name: no bucket is asked for it.
    ("--resume gone/run --checkpoint-dir gs://b/runs", "there is no run or checkpoint gone/run"),
    ("--resume latest --checkpoint-dir memory://b/x", "no run with a checkpoint in memory://b/x"),
    (f"--checkpoint-dir {URL} --num-envs 5 --num-steps 5", "does not divide"),
    (f"--checkpoint-dir {URL} --length 101", "a corridor of 101 is too long"),
]


@pytest.mark.parametrize(("command", "message"), REFUSED)
def test_what_cannot_be_is_refused_in_one_line_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output, command: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    # As if there were no drivers, where there are.
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for scheme in ("gs", "s3"):
        monkeypatch.delitem(
            vars(sys.modules["fsspec.registry"])["_registry"], scheme, raising=False
        )
    assert main(TASK, DEFAULTS, command.split()) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert told.out == ""
    assert objects() == {}
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("seeds", ["1", "2"])
@pytest.mark.parametrize("operation", ["ls", "put_file", "pipe_file"])
def test_a_bucket_that_cannot_be_used_is_told_before_anything_is_compiled(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output, operation: str, seeds: str
) -> None:
    def refuse(name: str, path: str) -> None:
        raise PermissionError("403: may not")

    intercept(monkeypatch, (operation,), refuse)
    assert begin(4, "--num-seeds", seeds) == 2
    told = capsys.readouterr()
    assert told.err == f"error: cannot reach {URL}: 403: may not\n"
    assert told.out == ""
    assert objects() == {}
    assert not machine.exists() or not any(machine.iterdir())


@pytest.mark.parametrize("place", [URL, f"{URL}/run", f"{URL}/run/checkpoints/2"])
def test_a_cache_that_cannot_be_written_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Output, place: str
) -> None:
    assert begin(4) == 0
    capsys.readouterr()
    before = objects()
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    resumed = ["--resume", "latest", "--checkpoint-dir"] if place == URL else ["--resume"]
    assert main(TASK, DEFAULTS, [*resumed, place]) == 2
    told = capsys.readouterr()
    assert (
        told.err
        == "error: cannot use /dev/null/cache/ppo_mask/runs/memory/bucket/runs: Not a directory\n"
    )
    assert objects() == before


def test_what_cannot_be_read_here_is_copied_with_a_later_checkpoint(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    read, failed = Manifest.of, list[Path]()

    def fail_once(folder: Path) -> Manifest:
        if RunFolder(folder).checkpoints.newest() == 2 and not failed:
            failed.append(folder)
            raise PermissionError(errno.EACCES, "Permission denied", f"{folder}/secret")
        return read(folder)

    monkeypatch.setattr(Manifest, "of", fail_once)
    assert begin(6) == 0
    told = capsys.readouterr().err
    assert f"warning: cannot use {machine}/run/secret: Permission denied; the next" in told
    assert_in_step(RunFolder(machine / "run"))


def test_a_damaged_copy_is_not_taken(machine: Path, tmp_path: Path) -> None:
    assert begin(4) == 0
    shutil.rmtree(machine)
    whole = objects()
    path = next(p for p in whole if "checkpoints/4/state/" in p and "manifest.ocdbt" in p)
    bucket = open_storage(URL)
    bucket.store.pipe_file(path, b"something else")
    with pytest.raises(RunError, match=r"is damaged: checkpoints/4/state/\S+ is not what was"):
        bucket.pull("run")
    bucket.store.rm_file(path)
    with pytest.raises(RunError, match=r"run is damaged: \S+ is not there"):
        bucket.pull("run")
    set_objects(whole)
    said = json.loads(remote()["manifest.json"])
    said["files"]["../../outside"] = "0"
    for content, message in (
        (json.dumps(said), r"names \.\./\.\./outside, which is not in the run's folder"),
        (json.dumps(said | {"format": 2}), "is of another version of ppo_mask"),
        ("{", "is damaged"),
        ("[]", "is damaged"),
    ):
        bucket.store.pipe_file("/bucket/runs/run/manifest.json", content.encode())
        with pytest.raises(RunError, match=message):
            bucket.pull("run")
    assert not any(machine.iterdir())

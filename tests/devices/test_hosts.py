"""Two processes with disks of their own train one run, which lives in a bucket.

They stand in for two hosts. The bucket is a folder behind a URL.
"""

import os
import shutil
import signal
from pathlib import Path

import pytest

import hosts
from hosts import finish, start, updates
from ppo_mask.checkpoints import RunFolder, Storage, open_storage
from ppo_mask.checkpoints._manifest import Manifest, is_log
from same_run import assert_same_run, log
from waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.slow]

OFTEN = ("--log-interval", "2", "--save-interval", "4", "--eval-interval", "4")
OFTEN += ("--eval-episodes", "2", "--length", "3")


@pytest.fixture(autouse=True)
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """It is empty. This process is a third host, which only looks."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "looks"))
    (tmp_path / "bucket").mkdir()
    return open_storage(f"file://{tmp_path}/bucket/runs")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """What two processes that share a disk make of 24 updates at once."""
    parent = tmp_path_factory.mktemp("whole")
    finish(start("--checkpoint-dir", str(parent), "--run-name", "run", *OFTEN, *updates(24)))
    return RunFolder(parent / "run")


def new(bucket: Storage, name: str = "run") -> tuple[str, ...]:
    return "--checkpoint-dir", str(bucket.url), "--run-name", name, *OFTEN


def steps(bucket: Storage, name: str = "run") -> list[int]:
    manifest = bucket.manifest(name)
    return [] if manifest is None else manifest.steps


def there(bucket: Storage, name: str = "run") -> RunFolder:
    """What the bucket has of a run, on a machine that never had it."""
    shutil.rmtree(bucket.folder, ignore_errors=True)
    return RunFolder(bucket.pull(name))


def test_a_run_goes_on_wherever_there_is_only_the_bucket(
    tmp_path: Path, bucket: Storage, whole: RunFolder
) -> None:
    # Without a name: all must get the one that the first makes up.
    url = str(bucket.url)
    both = start("--checkpoint-dir", url, *OFTEN, *updates(100_000), disks=tmp_path / "one")
    wait_until(lambda: any(steps(bucket, name) for name in bucket.runs()), both)
    (name,) = bucket.runs()
    both[1].send_signal(signal.SIGTERM)
    (first, _), (second, _) = finish(both, 128 + signal.SIGTERM)
    assert f"bucket  {url}/{name}\n" in first
    assert "bucket" not in second
    assert not (tmp_path / "one" / "1").exists()  # Nothing but the first one's disk is used.
    stopped_at = steps(bucket, name)[-1]
    assert [x["update"] for x in log(there(bucket, name))][-1] == stopped_at

    # On two other hosts, then on one, each with no more than the bucket.
    resume = ("--resume", "latest", "--checkpoint-dir", url)
    more = updates(stopped_at + 4)
    ((first, _), _) = finish(start(*resume, *more, disks=tmp_path / "two"))
    assert f", from update {stopped_at}\n" in first
    more = updates(stopped_at + 8)
    ((alone, _),) = finish(start(*resume, *more, count=1, disks=tmp_path / "three"))
    assert "note: saved on 4 x cpu, resumed on 2 x cpu" in alone
    # What one has saved two go on with, under a name.
    more = updates(stopped_at + 12)
    finish(start("--resume", name, *resume[2:], *more, disks=tmp_path / "four"))
    assert steps(bucket, name)[-1] == stopped_at + 12
    lines = [x["update"] for x in log(there(bucket, name)) if "train/lr" in x]
    assert lines[:-1] == list(range(2, lines[-1], 2))[: len(lines) - 1]


def test_a_run_is_taken_back_and_copied_to_the_bit(
    tmp_path: Path, bucket: Storage, whole: RunFolder
) -> None:
    finish(start(*new(bucket), *updates(16), disks=tmp_path / "one"))
    old = f"{bucket.url}/run/checkpoints/12"
    (_, first), (_, second) = finish(start("--resume", old, disks=tmp_path / "two"), 2)
    assert "add --rewind to drop" in first
    assert second == "error: the first process could not plan the run; its message says why\n"
    before = Manifest.of(there(bucket).path)
    elsewhere = open_storage(f"file://{tmp_path}/bucket/copies")
    copy = ("--resume", old, "--checkpoint-dir", str(elsewhere.url), *updates(24))
    finish(start(*copy, disks=tmp_path / "two"))
    assert_same_run(there(elsewhere), whole)
    assert Manifest.of(there(bucket).path) == before
    # To a folder that both see, and from there to a bucket again.
    shared = tmp_path / "shared"
    copy = ("--resume", old, "--checkpoint-dir", str(shared), *updates(20))
    finish(start(*copy, disks=tmp_path / "three"))
    copy = ("--resume", str(shared / "run"), "--checkpoint-dir", f"{elsewhere.url}/more")
    finish(start(*copy, *updates(24), disks=tmp_path / "three"))
    assert_same_run(there(open_storage(f"{elsewhere.url}/more")), whole)

    finish(start("--resume", old, "--rewind", *updates(24), disks=tmp_path / "two"))
    assert_same_run(there(bucket), whole)


def test_what_is_refused_ends_all_in_one_line_each(tmp_path: Path, bucket: Storage) -> None:
    url = bucket.url
    (tmp_path / "bucket" / "closed").write_text("no folder")
    for command, message in (
        (("--resume", f"{url}/none"), f"there is no run {url}/none"),
        (("--resume", "latest", "--checkpoint-dir", str(url)), "no run with a checkpoint in"),
        (new(open_storage(f"file://{tmp_path}/bucket/closed")), "cannot reach file://"),
        ((*new(bucket), "--length", "101"), "a corridor of 101 is too long"),
        ((*new(bucket), "--num-envs", "6"), "--num-devices says how many"),
    ):
        began = start(*command, disks=tmp_path / "disks")
        (out, first), (_, second) = finish(began, 2)
        assert message in first
        for said in (first, second):
            assert said.startswith("error: ")
            assert said.count("\n") == 1
        assert "compiling" not in out
        assert steps(bucket) == []


@pytest.mark.nightly
def test_a_bucket_that_fails_at_the_end_ends_all_with_an_error(
    tmp_path: Path, bucket: Storage
) -> None:
    both = start(*new(bucket), *updates(100_000), disks=tmp_path / "disks")
    wait_until(lambda: steps(bucket), both)
    runs = tmp_path / "bucket" / "runs"
    both[0].send_signal(signal.SIGSTOP)  # Else it might make the folder anew in between.
    os.waitpid(both[0].pid, os.WUNTRACED)
    runs.rename(tmp_path / "aside")
    runs.write_text("no folder")
    both[0].send_signal(signal.SIGCONT)
    (local,) = tmp_path.glob("disks/0/ppo_mask/**/runs/run")
    newest = RunFolder(local).checkpoints.newest
    began_at = newest()
    wait_until(lambda: newest() != began_at, both)
    both[0].send_signal(signal.SIGTERM)
    (_, first), (_, second) = finish(both, 1)
    assert "has the whole run, and --resume" in first
    assert "error: the first process could not copy the run; its message says why\n" in second
    # As the message says: on the same machines it goes on, and is copied.
    runs.unlink()
    (tmp_path / "aside").rename(runs)
    stopped_at = newest()
    assert stopped_at is not None
    assert stopped_at > steps(bucket)[-1]
    resume = ("--resume", f"{bucket.url}/run", *updates(stopped_at + 4))
    ((out, _), _) = finish(start(*resume, disks=tmp_path / "disks"))
    assert f", from update {stopped_at}\n" in out
    assert steps(bucket)[-1] == stopped_at + 4


@pytest.mark.nightly
def test_a_damaged_checkpoint_ends_all(tmp_path: Path, bucket: Storage) -> None:
    finish(start(*new(bucket), *updates(4), disks=tmp_path / "one"))
    (damaged,) = tmp_path.glob("bucket/runs/run/checkpoints/4/state/manifest.ocdbt")
    damaged.write_bytes(b"something else")
    for disks, message in (("two", "is damaged"), ("one", "nothing to do")):
        code = 2 if disks == "two" else 0
        resume = ("--resume", f"{bucket.url}/run", *updates(4))
        (first, second) = finish(start(*resume, disks=tmp_path / disks), code)
        assert message in "".join(first)
        assert "its message says why" in second[1] or code == 0


@pytest.mark.nightly
def test_every_moment_of_a_save_leaves_a_run_that_goes_on(
    tmp_path: Path, bucket: Storage, whole: RunFolder
) -> None:
    moments = tmp_path / "moments"
    moments.mkdir()
    seen = hosts.watching(tmp_path / "bucket", moments)
    disks = tmp_path / "one"
    finish(start(*new(bucket), *updates(20), disks=disks, program=Path(hosts.__file__), **seen))
    saved = dict[str, str]()
    outcomes: dict[tuple[int, ...], Path] = {}
    count = len([*moments.glob("[0-9]*")])
    for moment in (moments / str(number) for number in range(count)):
        copy = open_storage(f"file://{moment}/runs")
        if not (kept := tuple(steps(copy))):
            continue
        run = there(copy)  # Compares all checksums.
        assert kept == tuple(run.checkpoints.steps())
        for path, checksum in Manifest.of(run.path).files.items():
            assert saved.setdefault(path, checksum) == checksum or is_log(path)
        outcomes[kept] = moment  # The last: its log goes furthest beyond the checkpoints.
    assert count > 80
    assert {kept[-1] for kept in outcomes} == {4, 8, 12, 16, 20}
    for number, moment in enumerate(outcomes.values()):
        copy = open_storage(f"file://{moment}/runs")
        resume = ("--resume", f"{copy.url}/run", *updates(24))
        finish(start(*resume, disks=tmp_path / f"after{number}"))
        assert_same_run(there(copy), whole)


# Before the manifest of the settings, among a checkpoint's files, before its manifest, among the
# files of the next one, and after the manifest of the one after that, where something may be
# deleted. If the second alone is killed, the first ends what it is about: less is left to do.
@pytest.mark.parametrize(
    ("who", "operations"),
    [
        ("first", (2, 19, 40)),
        pytest.param("second", (8, 19), marks=pytest.mark.nightly),
        pytest.param("both", (8, 30), marks=pytest.mark.nightly),
    ],
)
def test_hosts_that_are_killed_at_operations_on_the_bucket_go_on_to_the_bit(
    tmp_path: Path, bucket: Storage, whole: RunFolder, who: str, operations: tuple[int, ...]
) -> None:
    # Each start but the first resumes what the last has left.
    finish(start(*new(bucket), *updates(4), disks=tmp_path / "0"))
    for number, operation in enumerate(operations):
        scratch = tmp_path / f"scratch{number}"
        scratch.mkdir()
        dies = hosts.dying(who, operation, scratch)
        # Every other time all is new; else the hosts come back with what they have on their disks.
        disks = tmp_path / str((number + 1) // 2)
        resume = ("--resume", f"{bucket.url}/run", *updates(24))
        both = start(*resume, disks=disks, program=Path(hosts.__file__), **dies)
        for process in both:
            process.communicate(timeout=PATIENCE)
        assert (scratch / "died").exists()
        # What is left of the two ends as well, by itself.
        for process, dead in zip(both, (who != "second", who != "first"), strict=True):
            assert process.returncode in ((-signal.SIGKILL,) if dead else (1, -signal.SIGABRT))
    finish(start("--resume", f"{bucket.url}/run", *updates(24), disks=tmp_path / "last"))
    assert_same_run(there(bucket), whole)

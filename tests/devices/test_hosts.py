"""Two processes train one run: in a folder that they share, and with disks of their own.

They stand in for two hosts. The bucket is a folder behind a URL.
"""

import shutil
import signal
from pathlib import Path

import pytest

from hosts import finish, start, updates
from ppo_mask.checkpoints import RunFolder, open_storage
from same_run import assert_same_run, log
from waiting import wait_until

pytestmark = pytest.mark.slow

OFTEN = ("--log-interval", "2", "--save-interval", "4", "--eval-interval", "4")
OFTEN += ("--eval-episodes", "2", "--length", "3")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """What two processes that share a disk make of 12 updates at once."""
    parent = tmp_path_factory.mktemp("whole")
    finish(start("--checkpoint-dir", str(parent), "--run-name", "run", *OFTEN, *updates(12)))
    return RunFolder(parent / "run")


def test_a_run_in_a_bucket_goes_on_to_the_bit_wherever_there_is_only_the_bucket(
    tmp_path: Path, whole: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "looks"))
    bucket = open_storage(f"file://{tmp_path}/bucket/runs")
    new = ("--checkpoint-dir", str(bucket.url), *OFTEN)
    ((first, _), (second, _)) = finish(start(*new, *updates(8), disks=tmp_path / "one"))
    (name,) = bucket.runs()  # Made up by the first, for all.
    assert f"bucket  {bucket.url}/{name}\n" in first
    assert "bucket" not in second
    # On two other hosts, each with no more than the bucket; and again, with a copy that is ahead.
    latest = ("--resume", "latest", "--checkpoint-dir", str(bucket.url))
    ((first, _), _) = finish(start(*latest, *updates(12), disks=tmp_path / "two"))
    assert ", from update 8\n" in first
    assert_same_run(RunFolder(bucket.pull(name)), whole)
    shutil.rmtree(tmp_path / "bucket" / "runs" / name / "checkpoints" / "12")
    ((first, _), _) = finish(start(*latest, *updates(12), disks=tmp_path / "two"))
    assert "nothing to do" in first
    assert bucket.steps(name)[-1] == 12
    # What two have saved one goes on with. A signal to any stops all.
    ((alone, _),) = finish(start(*latest, *updates(16), count=1, disks=tmp_path / "three"))
    assert "note: saved on 4 x cpu, resumed on 2 x cpu" in alone
    both = start(*latest, *updates(100_000), disks=tmp_path / "four")
    wait_until(lambda: bucket.steps(name)[-1] > 16, both)
    both[1].send_signal(signal.SIGTERM)
    finish(both, 128 + signal.SIGTERM)
    stopped_at = bucket.steps(name)[-1]
    last = log(RunFolder(bucket.pull(name)))[-1]["update"]
    assert last == stopped_at // 2 * 2  # It may have stopped between two log lines.


def test_a_run_that_one_host_cannot_read_is_refused_in_one_line_each(
    tmp_path: Path, whole: RunFolder
) -> None:
    shutil.copytree(whole.path, tmp_path / "0" / "runs" / "run")
    (tmp_path / "1").mkdir()
    resumed = start("--resume", "~/runs/run", *updates(16), disks=tmp_path)
    (_, first), (_, second) = finish(resumed, 2)
    assert first == "error: another process could not find the run; its message says why\n"
    assert second == (
        f"error: there is no run or checkpoint {tmp_path}/1/runs/run; several processes need a "
        "folder, or a bucket, that all of them can read\n"
    )
    (_, first), (_, second) = finish(start("--resume", str(tmp_path / "none")), 2)
    assert first == f"error: there is no run or checkpoint {tmp_path}/none\n"
    assert second == "error: process 0 could not plan the run; its message says why\n"

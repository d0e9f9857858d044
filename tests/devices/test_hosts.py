"""Two processes train one run: in a folder that they share, and with disks of their own.

They stand in for two hosts. The bucket is a folder behind a URL.
"""

import io
import shutil
import signal
from pathlib import Path
from unittest.mock import Mock

import jax
import pytest

from hosts import finish, start, updates
from ppo_mask.checkpoints import RunDir
from ppo_mask.checkpoints._runs import open_runs
from ppo_mask.devices import processes
from ppo_mask.devices.processes import connect
from ppo_mask.errors import RunError
from same_run import assert_same_run, log, newest
from waiting import PATIENCE, wait_until

OFTEN = ("--log-interval", "2", "--save-interval", "4", "--eval-interval", "4")
OFTEN += ("--eval-episodes", "2", "--length", "3")


def new(parent: Path) -> tuple[str, ...]:
    return "--checkpoint-dir", str(parent), "--run-name", "run"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """What two processes that share a disk make of 12 updates at once."""
    parent = tmp_path_factory.mktemp("whole")
    finish(start(*new(parent), *OFTEN, *updates(12)))
    return RunDir(parent / "run")


@pytest.mark.nightly
@pytest.mark.slow
def test_two_processes_learn_what_one_does(tmp_path: Path, whole: RunDir) -> None:
    finish(start(*new(tmp_path), *OFTEN, *updates(12), count=1))
    alone = RunDir(tmp_path / "run")
    for ours, theirs in zip(log(whole), log(alone), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)
    ours, theirs = newest(whole).arrays(), newest(alone).arrays()
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert array == pytest.approx(theirs[name], abs=1e-4), name


@pytest.mark.slow
def test_a_run_in_a_bucket_goes_on_to_the_bit_wherever_there_is_only_the_bucket(
    tmp_path: Path, whole: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "looks"))
    url = f"file://{tmp_path}/bucket/runs"
    bucket = open_runs(url)
    begin = ("--checkpoint-dir", url, *OFTEN)
    ((first, _), (second, _)) = finish(start(*begin, *updates(8), disks=tmp_path / "one"))
    (name,) = bucket.names()  # Made up by the first, for all.
    mirror = bucket.run(name).mirror
    assert mirror is not None
    assert f"bucket  {url}/{name}\n" in first
    assert "bucket" not in second
    # On two other hosts, each with no more than the bucket; and again, with a copy that is ahead.
    latest = ("--resume", "latest", "--checkpoint-dir", url)
    ((first, _), _) = finish(start(*latest, *updates(12), disks=tmp_path / "two"))
    assert ", from update 8\n" in first
    assert_same_run(bucket.run(name).pull(), whole)
    shutil.rmtree(tmp_path / "bucket" / "runs" / name / "checkpoints" / "12")
    ((first, _), _) = finish(start(*latest, *updates(12), disks=tmp_path / "two"))
    assert "nothing to do" in first
    assert mirror.steps()[-1] == 12
    # What two have saved one goes on with. A signal to any stops all.
    ((alone, _),) = finish(start(*latest, *updates(16), count=1, disks=tmp_path / "three"))
    assert "note: saved on 4 x cpu, resumed on 2 x cpu" in alone
    both = start(*latest, *updates(100_000), disks=tmp_path / "four")
    wait_until(lambda: mirror.steps()[-1] > 16, both)
    both[1].send_signal(signal.SIGTERM)
    finish(both, 128 + signal.SIGTERM)
    stopped_at = mirror.steps()[-1]
    last = log(bucket.run(name).pull())[-1]["update"]
    assert last == stopped_at // 2 * 2  # It may have stopped between two log lines.


@pytest.mark.slow
def test_a_run_that_one_host_cannot_read_is_refused_in_one_line_each(tmp_path: Path) -> None:
    (tmp_path / "0" / "runs" / "run").mkdir(parents=True)
    (tmp_path / "0" / "runs" / "run" / "config.yaml").write_text("{}")
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


@pytest.mark.slow
def test_a_lost_process_ends_the_other_and_the_run_resumes(tmp_path: Path) -> None:
    folder = RunDir(tmp_path / "run")
    both = start(*new(tmp_path), *OFTEN, *updates(100_000))
    wait_until(lambda: folder.steps(), both)
    both[1].kill()
    out, err = both[0].communicate(timeout=PATIENCE)
    # In its own words where a collective fails first, in JAX's where the heartbeat does.
    assert both[0].returncode in (1, -signal.SIGABRT)
    assert "another process of this run is gone" in err or "another task died" in err
    assert f"resume with --resume {folder.path}" in out
    last = folder.steps()[-1] + 4
    finish(start("--resume", str(folder.path), *updates(last)))
    assert folder.steps()[-1] == last
    logged = [line["update"] for line in log(folder) if "train/entropy" in line]
    assert logged == list(range(2, last + 1, 2))


@pytest.mark.parametrize("given", [{"JAX_NUM_PROCESSES": "2"}, {"JAX_PROCESS_ID": "0"}])
def test_half_a_description_of_the_others_is_refused(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RunError, match="go together: set all three or none"):
        connect(True)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"SLURM_STEP_NUM_TASKS": "two"}, "SLURM_STEP_NUM_TASKS must be a number, got 'two'"),
        (
            {"JAX_NUM_PROCESSES": "", "JAX_PROCESS_ID": "0", "JAX_COORDINATOR_ADDRESS": "a:1"},
            "JAX_NUM_PROCESSES must be a number, got ''",
        ),
    ],
)
def test_a_variable_that_is_no_number_is_named(
    given: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RunError, match=problem):
        connect(None)


@pytest.mark.parametrize("error", [KeyError("OMPI_COMM_WORLD_SIZE"), ValueError("int: 'x'")])
def test_whatever_jax_makes_of_a_cluster_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax.distributed, "initialize", Mock(side_effect=error))
    with pytest.raises(RunError, match=f"found no other processes .*{error.args[0]}"):
        connect(True)


def test_no_processes_are_awaited_where_none_are_expected() -> None:
    connect(None)
    connect(False)


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """This machine has chips and the package of a TPU; whether it joins others is recorded."""
    join = Mock()
    monkeypatch.setattr(jax.distributed, "initialize", join)
    monkeypatch.setattr(processes, "find_spec", Mock(return_value="libtpu"))
    monkeypatch.setattr(Path, "glob", lambda *_: [Path("/dev/vfio/0")])
    return join


@pytest.mark.parametrize(("hosts", "number"), [("t1v-w-0", 1), ("t1v-w-0,t1v-w-1", 2)])
@pytest.mark.parametrize("told_by", ["TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES", "metadata"])
def test_a_tpu_of_one_host_joins_nobody(
    told_by: str, hosts: str, number: int, joined: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Mock(return_value=io.BytesIO(hosts.encode()))
    monkeypatch.setattr(processes, "urlopen", asked)
    if told_by != "metadata":
        monkeypatch.setenv(told_by, hosts)
    assert connect(None) is (number > 1)
    assert joined.called is (number > 1)
    assert asked.called is (told_by == "metadata")


def test_a_tpu_without_googles_metadata_is_one_host(
    joined: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "urlopen", Mock(side_effect=OSError("no such name")))
    assert not connect(None)
    joined.assert_not_called()


def test_a_program_that_used_jax_too_early_is_told_what_to_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jax.devices()
    given = {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0", "JAX_COORDINATOR_ADDRESS": "a:1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RunError, match=r"used JAX before .* call jax.distributed.initialize\(\)"):
        connect(None)

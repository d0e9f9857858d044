"""Runs in a bucket, which is one in this process's memory, or a folder behind a URL."""

import json
import shutil
import signal
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from corridor import DEFAULTS, TASK
from memory_bucket import (
    URL,
    WRITES,
    assert_in_step,
    begin,
    go_on,
    intercept,
    manifest,
    remote,
    use_machine,
)
from ppo_mask.callbacks import _tensorboard, _uploader
from ppo_mask.checkpoints import RunFolder, Storage, load_policy, open_storage, read_arrays
from ppo_mask.checkpoints._manifest import Manifest
from ppo_mask.errors import RunError
from ppo_mask.runner import main
from same_run import assert_same_run
from waiting import PATIENCE, wait_until

CORRIDOR = Path(__file__).parents[1] / "support" / "corridor.py"
Output = pytest.CaptureFixture[str]


pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_uploader, "_PAUSES", (0.0, 0.0))


def test_a_run_is_copied_with_each_checkpoint_and_goes_on_where_there_is_only_the_bucket(
    machine: Path, uninterrupted: RunFolder, capsys: Output
) -> None:
    assert begin(7) == 0
    folder, shown = RunFolder(machine / "run"), capsys.readouterr().out
    assert f"run     {folder.path}\n" in shown
    assert f"bucket  {URL}/run\n" in shown
    assert_in_step(folder)
    assert {"config.yaml", "metrics.jsonl", "checkpoints/7/description/metadata"} <= {*remote()}
    shutil.rmtree(machine)
    assert go_on(12) == 0
    assert f"run     {folder.path}, from update 7\n" in capsys.readouterr().out
    assert_same_run(folder, uninterrupted)
    assert_in_step(folder)


@pytest.mark.slow
def test_what_a_killed_copy_has_of_a_log_beyond_its_manifest_is_taken_back(
    machine: Path, uninterrupted: RunFolder
) -> None:
    assert begin(6) == 0
    (events,) = (path for path in remote() if "tfevents" in path)
    (whole,) = uninterrupted.tensorboard.iterdir()
    last = [record for record, _ in _tensorboard._records(whole.read_bytes())][-1]
    content = remote()[events] + last
    open_storage(URL).store.pipe_file(f"{URL}/run/{events}", content)
    shutil.rmtree(machine)
    assert go_on(12) == 0
    assert_in_step(RunFolder(machine / "run"))
    assert_same_run(RunFolder(machine / "run"), uninterrupted)


def offline(patch: pytest.MonkeyPatch, after: int) -> None:
    """The bucket cannot be written to any more after so many operations."""
    done = 0

    def fail(name: str, path: str) -> None:
        nonlocal done
        done += 1
        if done > after:
            raise ConnectionError("the network is down")

    intercept(patch, WRITES, fail)


def test_a_bucket_that_fails_is_tried_again_and_the_local_folder_has_all(
    machine: Path, uninterrupted: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    with monkeypatch.context() as patch:
        offline(patch, after=40)
        assert begin(10) == 1
    error = capsys.readouterr().err
    down = f"cannot reach {URL}: the network is down"
    assert f"warning: {down}; the next checkpoint is the next try\n" in error
    last = error.splitlines()[-1]
    assert last == (
        f"error: {down}; {machine / 'run'} has the whole run, and --resume {URL}/run copies it"
    )
    folder = RunFolder(machine / "run")
    assert folder.checkpoints.steps()[-1] == 10
    assert manifest().steps[-1] < 10
    # What was trained is not trained again: the local folder is ahead, and counts.
    assert go_on(10) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert_in_step(folder)
    assert go_on(12) == 0
    assert_same_run(folder, uninterrupted)
    assert_in_step(folder)


def test_a_bucket_that_fails_for_a_while_is_caught_up_with(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    done = 0

    def fail_for_a_while(name: str, path: str) -> None:
        nonlocal done
        done += 1
        if 30 < done < 33:
            raise ConnectionError

    intercept(monkeypatch, WRITES, fail_for_a_while)
    assert begin(10) == 0
    assert f"warning: cannot reach {URL}: ConnectionError" in capsys.readouterr().err
    assert_in_step(RunFolder(machine / "run"))


@pytest.mark.slow
def test_a_run_that_went_on_elsewhere_is_fetched(
    tmp_path: Path, machine: Path, uninterrupted: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begin(5) == 0
    (machine / "run" / "wandb").mkdir()
    (machine / "run" / "wandb" / "log").write_text("kept")
    with monkeypatch.context() as patch:
        other = use_machine(patch, tmp_path / "two")
        assert go_on(9) == 0
        assert_in_step(RunFolder(other / "run"))
    assert go_on(12) == 0
    assert_same_run(RunFolder(machine / "run"), uninterrupted)
    assert_in_step(RunFolder(machine / "run"))
    assert [path.name for path in machine.iterdir()] == ["run"]
    assert (machine / "run" / "wandb" / "log").read_text() == "kept"


@pytest.mark.slow
def test_what_two_machines_did_apart_is_kept(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    assert begin(5) == 0
    with monkeypatch.context() as patch:
        use_machine(patch, tmp_path / "two")
        assert go_on(9) == 0
    in_bucket = remote()
    # This one does not know: it has taken the run further by its local folder.
    assert go_on(11, "--lr", "0.1", run=str(machine / "run")) == 0
    ours = read_arrays(RunFolder(machine / "run").checkpoints.path(11))
    folder = RunFolder(open_storage(URL).pull("run"))
    assert "was continued without" in capsys.readouterr().err
    assert folder.checkpoints.steps()[-1] == 9
    assert remote() == in_bucket
    (aside,) = (path for path in machine.iterdir() if path.name != "run")
    kept = read_arrays(RunFolder(aside).checkpoints.path(11))
    assert all((kept[name] == ours[name]).all() for name in ours)


def test_a_process_that_should_be_dead_overwrites_nothing(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    in_bucket: dict[str, bytes] = {}
    push = Storage.push

    def overtake(storage: Storage, folder: RunFolder) -> None:
        if not in_bucket and folder.checkpoints.newest() == 6:
            with monkeypatch.context() as patch:
                use_machine(patch, tmp_path / "two")
                patch.setattr(Storage, "push", push)
                assert go_on(9, "--lr", "0.1") == 0
            in_bucket.update(remote())
        push(storage, folder)

    monkeypatch.setattr(Storage, "push", overtake)
    assert begin(10) == 1
    told = capsys.readouterr().err
    assert f"warning: another process has written to {URL}/run since; nothing of it" in told
    assert remote() == in_bucket
    assert RunFolder(machine / "run").checkpoints.steps()[-1] == 10


def test_names_are_those_of_the_bucket_too(machine: Path, capsys: Output) -> None:
    few = ["--checkpoint-dir", URL, "--total-timesteps", "32"]
    assert main(TASK, DEFAULTS, few) == 0
    assert main(TASK, DEFAULTS, [*few, "--run-suffix", "x"]) == 0
    shutil.rmtree(machine)
    assert main(TASK, DEFAULTS, few) == 0
    today = date.today().isoformat()
    names = {f"{today}-001", f"{today}-002-x", f"{today}-003"}
    assert {*open_storage(URL).runs()} == names
    shutil.rmtree(machine)
    capsys.readouterr()
    taken = f"{URL}/{today}-003"
    for name in (["--run-name", f"{today}-003"], ["--run-name", today, "--run-suffix", "003"]):
        assert main(TASK, DEFAULTS, [*few, *name]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"error: there is a run {taken} already; resume it by --resume")
    assert not machine.exists()


@pytest.mark.slow
def test_latest_is_the_run_with_the_newest_manifest(machine: Path) -> None:
    for name in ("b", "a"):
        new = ["--checkpoint-dir", URL, "--run-name", name, "--total-timesteps", "32"]
        assert main(TASK, DEFAULTS, new) == 0
    shutil.rmtree(machine)
    latest = ["--resume", "latest", "--checkpoint-dir", URL, "--total-timesteps", "64"]
    assert main(TASK, DEFAULTS, latest) == 0
    assert RunFolder(machine / "a").checkpoints.steps() == [1, 2]
    assert not (machine / "b").exists()


@pytest.mark.optimized
def test_each_seed_is_copied(machine: Path) -> None:
    seeds = ["--checkpoint-dir", URL, "--run-name", "run", "--num-seeds", "2"]
    assert main(TASK, DEFAULTS, [*seeds, "--total-timesteps", "64"]) == 0
    for name in ("run-seed0", "run-seed1"):
        here = Manifest.of(machine / name)
        there = open_storage(URL).manifest(name)
        assert there is not None
        assert (there.files, there.steps) == (here.files, [2])


def test_a_policy_is_loaded_from_its_url(machine: Path) -> None:
    assert begin(4) == 0
    shutil.rmtree(machine)
    for place in ("", "/", "/checkpoints/2", "/checkpoints/4/"):
        policy = load_policy(f"{URL}/run{place}")
        assert policy.model.hyperparameters["hidden_dim"] == 8
    with pytest.raises(RunError, match=f"there is no run {URL}/walk"):
        load_policy(f"{URL}/walk")


@pytest.mark.slow
def test_a_run_may_be_fetched_while_it_is_trained(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begin(8) == 0
    gone_on = False

    def train_on(name: str, path: str) -> None:
        nonlocal gone_on
        if not gone_on:
            gone_on = True
            use_machine(monkeypatch, tmp_path / "one")
            assert go_on(12) == 0  # Deletes what is about to be fetched.

    bucket_here = use_machine(monkeypatch, tmp_path / "two")
    bucket = open_storage(URL)
    with monkeypatch.context() as patch:
        intercept(patch, ("get_file",), train_on)
        fetched = RunFolder(bucket.pull("run"))
    assert fetched.path == bucket_here / "run"
    assert fetched.checkpoints.steps()[-1] == 12
    assert Manifest.of(fetched.path).files == Manifest.of(machine / "run").files
    assert [path.name for path in bucket_here.iterdir()] == ["run"]


@pytest.mark.optimized
def test_sigterm_saves_and_another_process_goes_on_from_the_bucket(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket/runs"
    there = tmp_path / "bucket" / "runs" / "run" / "manifest.json"
    often = ("--run-name", "run", "--save-interval", "300", "--log-interval", "70")
    long = ("--total-timesteps", str(32 * 1_000_000))
    command = [sys.executable, str(CORRIDOR)]
    process = subprocess.Popen([*command, "--checkpoint-dir", url, *often, *long])
    wait_until(lambda: there.exists() and '"steps": []' not in there.read_text(), [process])
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
    last = json.loads(there.read_text())["steps"][-1]
    shutil.rmtree(tmp_path / "one")
    total = ("--total-timesteps", str(32 * (last + 9)))
    subprocess.run([*command, "--resume", f"{url}/run", *total], check=True)
    (found,) = (tmp_path / "one").glob("ppo_mask/runs/file/**/run")
    alone = ("--checkpoint-dir", str(tmp_path / "whole"), *often, *total)
    assert main(TASK, DEFAULTS, [*alone]) == 0
    assert_same_run(RunFolder(found), RunFolder(tmp_path / "whole" / "run"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("new", "more"), [("memory://bucket/elsewhere", ()), ("elsewhere", ("--run-name", "copy"))]
)
def test_a_run_in_a_bucket_is_resumed_elsewhere(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: str, more: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert begin(8) == 0
    before = remote()
    place = ("--checkpoint-dir", new, "--rewind", *more)
    assert go_on(12, *place, run=f"{URL}/run/checkpoints/6") == 0
    assert remote() == before
    if more:
        copy = RunFolder(tmp_path / "elsewhere" / "copy")
    else:
        copy = RunFolder(open_storage(new).pull("run"))
        assert open_storage(new).manifest("run") is not None
    assert copy.checkpoints.steps()[-1] == 12
    # Given again, the place is that of the run.
    assert go_on(12, "--checkpoint-dir", URL, "--run-name", "run") == 0
    assert go_on(12, "--checkpoint-dir", f"{URL}/", run="latest") == 0

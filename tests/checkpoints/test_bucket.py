"""Runs in a bucket, which is one in this process's memory."""

import errno
import shutil
import sys
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

import ppo_mask as pm
from counting import DEFAULTS, TASK, Bias
from memory_bucket import (
    URL,
    WRITES,
    assert_in_step,
    begin,
    contents,
    go_on,
    intercept,
    objects,
    remote,
    set_objects,
    use_machine,
)
from ppo_mask.callbacks import _saver
from ppo_mask.checkpoints import RunDir, _mirror
from ppo_mask.checkpoints._mirror import Mirror
from ppo_mask.checkpoints._objects import Bucket
from ppo_mask.checkpoints._runs import open_runs
from ppo_mask.errors import RunError
from ppo_mask.runner import main
from same_run import assert_same_run

Output = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_saver, "_PAUSES", (0.0, 0.0))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    parent = tmp_path_factory.mktemp("whole")
    assert begin(12, url=str(parent)) == 0
    return RunDir(parent / "run")


def copied(name: str, url: str = URL) -> list[int]:
    mirror = open_runs(url).run(name).mirror
    assert mirror is not None
    return mirror.steps()


def test_a_run_is_copied_with_each_checkpoint_and_goes_on_where_there_is_only_the_bucket(
    machine: Path, uninterrupted: RunDir, capsys: Output
) -> None:
    assert begin(7) == 0
    folder, shown = RunDir(machine / "run"), capsys.readouterr().out
    assert f"run     {folder.path}\n" in shown
    assert f"bucket  {URL}/run\n" in shown
    assert_in_step(folder)
    assert {"config.yaml", "metrics.jsonl", "checkpoints/7/description.json"} <= {*remote()}
    shutil.rmtree(machine)
    assert go_on(12) == 0
    assert f"run     {folder.path}, from update 7\n" in capsys.readouterr().out
    assert_same_run(folder, uninterrupted)
    assert_in_step(folder)


def test_a_bucket_that_fails_is_tried_again_and_the_local_folder_has_all(
    machine: Path, uninterrupted: RunDir, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    done = 0

    def fail(name: str, path: str) -> None:
        nonlocal done
        done += 1
        if 25 < done < 30 or done > 60:
            raise ConnectionError("the network is down")

    with monkeypatch.context() as patch:
        intercept(patch, WRITES, fail)
        assert begin(10) == 1
    error = capsys.readouterr().err
    down, folder = f"cannot reach {URL}: the network is down", RunDir(machine / "run")
    assert error.count(f"warning: {down}; the last good checkpoint is ") > 1
    newest = folder.checkpoint().path
    kept = f"the last good checkpoint is {newest}, and --resume {URL}/run copies it"
    last = f"error: {down}; {kept}\n"
    assert error.endswith(f"\n{last}")
    assert folder.steps()[-1] == 10
    assert 2 < copied("run")[-1] < 10
    # What was trained is not trained again: the local folder is ahead, and counts.
    assert go_on(10) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert_in_step(folder)
    assert go_on(12) == 0
    assert_same_run(folder, uninterrupted)
    assert_in_step(folder)


def test_a_run_that_went_on_elsewhere_is_fetched(
    tmp_path: Path, machine: Path, uninterrupted: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begin(5) == 0
    with monkeypatch.context() as patch:
        other = use_machine(patch, tmp_path / "two")
        assert go_on(9) == 0
        assert_in_step(RunDir(other / "run"))
    assert go_on(12) == 0
    assert_same_run(RunDir(machine / "run"), uninterrupted)
    assert_in_step(RunDir(machine / "run"))
    assert [path.name for path in machine.iterdir()] == ["run"]


def test_a_process_that_was_overtaken_overwrites_nothing_and_what_it_did_is_kept(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    in_bucket: dict[str, bytes] = {}
    push = Mirror.push

    def overtake(mirror: Mirror, local: Path) -> None:
        if not in_bucket and RunDir(local).steps()[-1:] == [6]:
            with monkeypatch.context() as patch:
                use_machine(patch, tmp_path / "two")
                patch.setattr(Mirror, "push", push)
                assert go_on(9, "--lr", "0.1") == 0
            in_bucket.update(remote())
        push(mirror, local)

    monkeypatch.setattr(Mirror, "push", overtake)
    assert begin(10) == 1
    told = capsys.readouterr().err
    assert f"warning: {URL}/run was taken over by process " in told
    assert "; nothing of it was overwritten; the last good checkpoint is " in told
    assert remote() == in_bucket
    ours = contents(RunDir(machine / "run"))
    # The bucket counts; but nobody else has what goes further.
    assert open_runs(URL).run("run").pull().steps()[-1] == 9
    assert "was continued without" in capsys.readouterr().err
    assert remote() == in_bucket
    (aside,) = (path for path in machine.iterdir() if path.name != "run")
    assert contents(RunDir(aside)) == ours


def test_names_are_those_of_the_bucket_too(
    machine: Path, today: str, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    few = ["--checkpoint-dir", URL, "--total-timesteps", "32"]
    assert main(TASK, DEFAULTS, few) == 0
    assert main(TASK, DEFAULTS, few) == 0
    shutil.rmtree(machine)
    assert main(TASK, DEFAULTS, few) == 0
    assert {*open_runs(URL).names()} == {f"{today}-001", f"{today}-002", f"{today}-003"}
    shutil.rmtree(machine)
    capsys.readouterr()
    taken, before = f"{URL}/{today}-003", objects()
    assert main(TASK, DEFAULTS, [*few, "--run-name", f"{today}-003"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: there is a run {taken} already; resume it by --resume")
    # Of two that begin at once the second is refused, though it saw no such run.
    monkeypatch.setattr(Bucket, "folders", lambda _: [])
    assert main(TASK, DEFAULTS, [*few, "--run-name", f"{today}-003"]) == 2
    assert capsys.readouterr().err == f"error: there is a run {taken} already\n"
    assert objects() == before
    assert not machine.exists() or not any(machine.iterdir())


def test_latest_is_the_run_that_was_saved_last(machine: Path) -> None:
    for name in ("b", "a"):
        new = ["--checkpoint-dir", URL, "--run-name", name, "--total-timesteps", "32"]
        assert main(TASK, DEFAULTS, new) == 0
    MemoryFileSystem().pipe_file(f"{URL}/c/config.yaml", b"")
    shutil.rmtree(machine)
    latest = ["--resume", "latest", "--checkpoint-dir", URL, "--total-timesteps", "64"]
    assert main(TASK, DEFAULTS, latest) == 0
    assert RunDir(machine / "a").steps() == [1, 2]
    assert not (machine / "b").exists()


def test_each_seed_is_copied(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = ["--checkpoint-dir", URL, "--run-name", "run", "--num-seeds", "2"]
    task = TASK
    assert main(task, DEFAULTS, [*seeds, "--total-timesteps", "64"]) == 0
    for name in ("run-seed0", "run-seed1"):
        assert copied(name) == [2]


def test_a_policy_is_loaded_from_its_url(machine: Path) -> None:
    assert begin(4) == 0
    shutil.rmtree(machine)
    for place in ("", "/", "/checkpoints/2", "/checkpoints/4/"):
        policy = pm.load_policy(f"{URL}/run{place}", networks=[Bias])
        assert policy.model.network.hyperparameters == {"num_actions": 3}
    with pytest.raises(RunError, match=f"there is no run {URL}/walk"):
        pm.load_policy(f"{URL}/walk")
    with pytest.raises(RunError, match=f"no checkpoint {URL}/run/checkpoints/7; the run has: 2"):
        pm.load_policy(f"{URL}/run/checkpoints/7")


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

    elsewhere = use_machine(monkeypatch, tmp_path / "two")
    bucket = open_runs(URL)
    with monkeypatch.context() as patch:
        intercept(patch, ("get_file",), train_on)
        fetched = bucket.run("run").pull()
    assert fetched.steps()[-1] == 12
    assert contents(fetched) == contents(RunDir(machine / "run"))
    assert [path.name for path in elsewhere.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("new", "more"), [("memory://bucket/elsewhere", ()), ("elsewhere", ("--run-name", "copy"))]
)
def test_a_run_in_a_bucket_is_resumed_elsewhere(
    machine: Path,
    tmp_path: Path,
    uninterrupted: RunDir,
    monkeypatch: pytest.MonkeyPatch,
    new: str,
    more: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert begin(8) == 0
    before, place = remote(), ("--checkpoint-dir", new, "--rewind", *more)
    assert go_on(12, *place, run=f"{URL}/run/checkpoints/6") == 0
    assert remote() == before
    if more:
        copy = RunDir(tmp_path / "elsewhere" / "copy")
    else:
        copy = open_runs(new).run("run").pull()
        assert copied("run", new)[-1] == 12
    assert_same_run(copy, uninterrupted)
    # Given again, the place is that of the run.
    assert go_on(12, "--checkpoint-dir", URL, "--run-name", "run") == 0
    assert go_on(12, "--checkpoint-dir", f"{URL}/", run="latest") == 0


REFUSED = [
    ("--checkpoint-dir gs://b/runs", "gs:// needs a package that is not installed: pip install "),
    ("--resume gs://b/runs/run", "pip install 'ppo-mask[gcs]'"),
    ("--resume latest --checkpoint-dir s3://b/runs", "pip install 'ppo-mask[s3]'"),
    ("--checkpoint-dir xyz://b/runs", "xyz://b/runs: unknown scheme xyz://; give gs://, s3://"),
    ("--checkpoint-dir memory://", "is not the URL of a folder of runs, such as gs://bucket/runs"),
    ("--checkpoint-dir memory://b/../../x", "is not the URL of a folder of runs"),
    ("--checkpoint-dir memory://b::c/runs", "is a chain of URLs; give one URL without ::"),
    ("--resume memory://run", "memory://run is not the URL of a run, such as gs://bucket/runs/N"),
    ("--resume memory://b/runs/none", "there is no run memory://b/runs/none"),
    # A path is no run's name: no bucket is asked for it.
    ("--resume gone/run --checkpoint-dir gs://b/runs", "there is no run or checkpoint "),
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
    registry = vars(sys.modules["fsspec.registry"])["_registry"]
    for scheme in ("gs", "s3"):
        monkeypatch.delitem(registry, scheme, raising=False)
    assert main(TASK, DEFAULTS, command.split()) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.startswith("error: ")
    assert told.err.count("\n") == 1
    assert told.out == ""
    assert objects() == {}
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("operation", ["ls", "put_file", "pipe_file"])
def test_a_bucket_that_cannot_be_used_is_told_before_anything_is_compiled(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output, operation: str
) -> None:
    def refuse(name: str, path: str) -> None:
        raise PermissionError("403: may not")

    intercept(monkeypatch, (operation,), refuse)
    assert begin(4) == 2
    told = capsys.readouterr()
    assert told.err == f"error: cannot reach {URL}: 403: may not\n"
    assert told.out == ""
    assert objects() == {}
    assert not machine.exists() or not any(machine.iterdir())


def test_a_cache_that_cannot_be_written_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    assert begin(4) == 0
    capsys.readouterr()
    before = objects()
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    cache = "/dev/null/cache/ppo_mask/runs/memory/bucket/runs"
    for place in (f"latest --checkpoint-dir {URL}", f"{URL}/run", f"{URL}/run/checkpoints/2"):
        assert main(TASK, DEFAULTS, ["--resume", *place.split()]) == 2
        assert capsys.readouterr().err == f"error: cannot use {cache}: Not a directory\n"
    assert objects() == before


def test_what_cannot_be_read_here_is_copied_with_a_later_checkpoint(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    read, failed = _mirror._local_files, list[Path]()

    def fail_once(local: Path) -> dict[str, int]:
        if RunDir(local).steps()[-1:] == [2] and not failed:
            failed.append(local)
            raise PermissionError(errno.EACCES, "Permission denied", f"{local}/secret")
        return read(local)

    monkeypatch.setattr(_mirror, "_local_files", fail_once)
    assert begin(6) == 0
    told = capsys.readouterr().err
    assert f"warning: cannot use {machine}/run/secret: Permission denied; the last" in told
    assert_in_step(RunDir(machine / "run"))


def test_damage_in_a_bucket_is_one_line(machine: Path) -> None:
    assert begin(4) == 0
    shutil.rmtree(machine)
    whole, store = objects(), MemoryFileSystem()
    path = next(path for path in whole if path.endswith("checkpoints/4/arrays/manifest.ocdbt"))
    for damage in (lambda: store.pipe_file(path, b"else"), lambda: store.rm_file(path)):
        set_objects(whole)
        damage()
        folder = open_runs(URL).run("run").pull()
        with pytest.raises(RunError, match=r"^checkpoint \S+/4 is damaged: [^\n]+$"):
            folder.checkpoint(4).arrays()
        shutil.rmtree(machine)


def test_objects_that_would_be_outside_of_the_folder_are_not_fetched(machine: Path) -> None:
    assert begin(2) == 0
    there = remote()
    for name in ("../outside", "/outside", "a/../../outside", "folder/"):
        MemoryFileSystem.store[f"/bucket/runs/run/{name}"] = MemoryFile(data=b"x")
    shutil.rmtree(machine)
    folder = open_runs(URL).run("run").pull()
    there.pop("writer")
    assert contents(folder) == there
    assert [path.name for path in machine.iterdir()] == ["run"]

"""Whatever operation a process is killed at, what is complete is whole, and the run goes on.

Arrays are written by NumPy here: of Orbax's files nothing counts before the description is there.
"""

import itertools
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem

from counting import DEFAULTS, TASK, Bias, flags, train
from kills import Killed, killed_at
from memory_bucket import (
    URL,
    Objects,
    assert_in_step,
    begin,
    contents,
    go_on,
    objects,
    remote,
    set_objects,
    use_machine,
)
from ppo_mask.checkpoints import RunDir, _orbax
from ppo_mask.checkpoints._mirror import Mirror
from ppo_mask.checkpoints._runs import open_runs
from ppo_mask.networks import as_model
from ppo_mask.runner import _main, execute, make_plan
from same_run import assert_same_run, log

pytestmark = pytest.mark.usefixtures("machine")

REWIND = ("--rewind", "--save-interval", "2", "--log-interval", "3")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    model = as_model(Bias(3, key=jax.random.key(0)))  # Compiled once, not every time.
    monkeypatch.setattr(_main, "first_model", lambda *_: lambda _: model)

    def write(path: Path, arrays: dict[str, Any]) -> None:
        path.mkdir()
        with open(path / "all.npz", "wb") as file:
            np.savez(file, **arrays)

    def read(path: Path, names: Sequence[str]) -> dict[str, Any]:
        with np.load(path / "all.npz") as found:
            return {name: found[name] for name in names}

    monkeypatch.setattr(_orbax, "write", write)
    monkeypatch.setattr(_orbax, "read_arrays", read)


def mirror_of(name: str, url: str = URL) -> Mirror:
    mirror = open_runs(url).run(name).mirror
    assert mirror is not None
    return mirror


def assert_whole(folder: RunDir) -> None:
    for step in folder.steps():
        assert folder.checkpoint(step).arrays()["update"] == step


def test_a_new_run_on_a_disk(tmp_path: Path) -> None:
    often = ("--log-interval", "1", "--save-interval", "1")
    whole = train(tmp_path / "whole", 2, *often)
    for n in itertools.count():
        with killed_at(n, "files") as dead:
            train(tmp_path / str(n), 1, *often)
        if not dead:
            break
        folder = RunDir(tmp_path / str(n) / "run")
        assert_whole(folder)
        resume = ("--resume", str(folder.path)) if folder.config.exists() else often
        assert_same_run(train(folder.path.parent, 2, *resume), whole)
        left = {path.name for path in (folder.path / "checkpoints").iterdir()}
        assert left == {path.name for path in (whole.path / "checkpoints").iterdir()}
    assert n > 15


def test_a_run_wound_back_on_a_disk(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", 10, *REWIND[1:])
    before = train(tmp_path / "before", 6, *REWIND[1:])
    folder = RunDir(tmp_path / "run")
    shutil.copytree(before.path, folder.path)
    older = str(folder.checkpoint(4).path)
    plan = make_plan(DEFAULTS, flags(tmp_path, 8, "--resume", older, *REWIND), "")
    outcomes: dict[tuple[Any, ...], Path] = {}
    for n in itertools.count():
        shutil.rmtree(folder.path)
        shutil.copytree(before.path, folder.path)
        with killed_at(n, "files") as dead:
            execute(TASK, plan)
        steps, rest = folder.steps(), (folder.path / "checkpoints").iterdir()
        assert steps[-1] >= 4
        assert_whole(folder)
        left_over = len([path for path in rest if path.name not in map(str, steps)])
        outcome = (*steps, len(log(folder)), left_over)
        if outcome not in outcomes:
            outcomes[outcome] = tmp_path / f"outcome{len(outcomes)}" / "run"
            shutil.copytree(folder.path, outcomes[outcome])
        if not dead:
            break
    assert n > 30
    assert {steps[-1] for *steps, _, _ in outcomes} == {4, 6, 8}
    for path in outcomes.values():
        train(path.parent, 10, "--resume", "run")
        assert_same_run(RunDir(path), whole)
        assert {x.name for x in (path / "checkpoints").iterdir()} == {"6", "8", "10"}


def moments(machine: Path, patch: pytest.MonkeyPatch, into: Path) -> list[RunDir]:
    """What the folder of a run was whenever it was copied to the bucket, which is empty again."""
    found: list[RunDir] = []
    push = Mirror.push

    def remember(mirror: Mirror, local: Path) -> None:
        found.append(RunDir(into / f"moment{len(found)}" / "run"))
        shutil.copytree(local, found[-1].path)
        push(mirror, local)

    with patch.context() as inner:
        inner.setattr(Mirror, "push", remember)
        assert begin(6) == 0
        assert go_on(8, "--rewind", run=f"{URL}/run/checkpoints/4") == 0
    shutil.rmtree(machine)
    set_objects({})
    return found


def test_in_a_bucket(tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert begin(10, url=str(tmp_path / "whole")) == 0
    folder, marker = RunDir(machine / "run"), b""
    outcomes: dict[tuple[int, ...], Objects] = {}
    last, kills = list[int](), 0
    # To take a run over is to copy it as well. It is done again and again: killed at its first
    # operation, its second, and so on.
    for moment in moments(machine, monkeypatch, tmp_path):
        before, goal = objects(), moment.steps()
        for n in itertools.count():
            set_objects(before)
            shutil.rmtree(folder.path, ignore_errors=True)
            shutil.copytree(moment.path, folder.path)
            (folder.path / ".writer").write_bytes(marker)
            with killed_at(n, "objects") as dead:
                mirror_of("run").take_over(folder.path)
            if remote():
                with monkeypatch.context() as patch:
                    shutil.rmtree(use_machine(patch, tmp_path / "two"), ignore_errors=True)
                    there = open_runs(URL).run("run").pull()
                steps = there.steps()
                assert_whole(there)
                # All of before, all of now, or on the way: what is dropped goes from the end, what
                # is new comes from the start, and only then what is not kept goes.
                assert {*steps} <= {*last, *goal}
                assert max(steps, default=0) >= min(max(last, default=0), max(goal, default=0))
                outcomes.setdefault((len(log(there)) if steps else 0, *steps), objects())
            if not dead:
                break
            kills += 1
        assert steps == goal
        assert_in_step(folder)
        last, marker = goal, (folder.path / ".writer").read_bytes()
    assert kills > 100
    assert {max(steps, default=0) for _, *steps in outcomes} == {0, 2, 4, 6, 8}
    for n, (outcome, bucket) in enumerate(outcomes.items()):
        if len(outcome) > 1:
            set_objects(bucket)
            there = RunDir(use_machine(monkeypatch, tmp_path / f"after{n}") / "run")
            assert go_on(10) == 0
            assert_same_run(there, RunDir(tmp_path / "whole" / "run"))
            assert_in_step(there)


def test_a_copy_of_a_run_is_whole_or_not_there(tmp_path: Path) -> None:
    run, path = train(tmp_path / "old", 4, "--no-tensorboard"), tmp_path / "run"
    for n in itertools.count():
        with killed_at(n, "files") as dead:
            run.fork(4, RunDir(path))
        assert list(tmp_path.glob("*/config.yaml")) in ([], [path / "config.yaml"])
        if path.exists():
            break
    assert dead
    assert n > 5
    assert contents(RunDir(path)) == contents(run)


def test_a_description_appears_whole_in_a_folder_behind_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{tmp_path}/bucket/runs"
    assert begin(2, url=url) == 0

    def write_half(self: LocalFileSystem, path: str, value: bytes) -> None:
        Path(path).write_bytes(value[: len(value) // 2])
        raise Killed

    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(LocalFileSystem, "pipe_file", write_half)
        go_on(4, run=f"{url}/run")
    assert mirror_of("run", url).steps() == [2]
    assert go_on(4, run=f"{url}/run") == 0
    assert mirror_of("run", url).steps() == [2, 4]

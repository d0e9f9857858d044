"""What the first of several processes sends the others; no other process is started here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from corridor import DEFAULTS
from memory_bucket import STEPS_PER_UPDATE, URL, begin, empty_bucket, set_objects
from ppo_mask.checkpoints import (
    CheckpointStore,
    RunFolder,
    _send as send,
    _store as store,
    restore_from_first,
)
from ppo_mask.devices import processes
from ppo_mask.errors import RunError
from ppo_mask.runner import _plan as plan
from ppo_mask.runner._plan import Plan, make_plan

STATE = {
    "key": jax.random.key(7),
    "numbers": jnp.array([-0.0, jnp.nan, jnp.inf, 1e-45]),
    "half": jnp.array([1.5, -0.0], jnp.bfloat16),
    "none": jnp.zeros((0, 3)),
    "flags": jnp.array([True, False]),
}


def as_other(patch: pytest.MonkeyPatch, *modules: Any) -> None:
    """This is not the first process any more."""
    for module in modules:
        patch.setattr(module, "is_first", lambda: False)


def test_a_checkpoint_arrives_as_it_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = CheckpointStore(tmp_path).save(3, STATE, {})
    like = jax.eval_shape(lambda: STATE)
    assert restore_from_first(path, like).keys() == STATE.keys()
    sent = send._pack(path)
    as_other(monkeypatch, send)
    monkeypatch.setattr(send, "bytes_from_first", lambda make, what: sent)
    # There is nothing at that path here.
    got = restore_from_first(Path("/elsewhere/3"), like)
    assert jax.random.key_data(got.pop("key")).tolist() == [0, 7]
    for name, array in got.items():
        assert np.asarray(array).tobytes() == np.asarray(STATE[name]).tobytes(), name
        assert array.dtype == STATE[name].dtype


def test_what_cannot_be_read_is_not_sent(tmp_path: Path) -> None:
    path = CheckpointStore(tmp_path).save(3, STATE, {})
    (path / "state" / "manifest.ocdbt").write_bytes(b"something else")
    with pytest.raises(RunError, match="is damaged"):
        restore_from_first(path, jax.eval_shape(lambda: STATE))


def test_no_room_for_what_was_sent_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = CheckpointStore(tmp_path).save(3, STATE, {})

    def full(**options: Any) -> None:
        raise OSError(28, "No space left on device")

    as_other(monkeypatch, send)
    monkeypatch.setattr(send, "TemporaryDirectory", full)
    with pytest.raises(RunError, match=r"for a moment: .*No space left on device"):
        restore_from_first(path, jax.eval_shape(lambda: STATE))


def test_only_the_first_process_has_a_folder_that_is_not_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = CheckpointStore(tmp_path / "one", shared=False)
    mine.save(3, STATE, {}, score=1.0)
    as_other(monkeypatch, store)
    # As on a host whose disk has something of an earlier run there.
    assert mine.steps() == []
    assert mine.newest() is mine.best() is None
    assert mine.what_is_kept() == "the first process says what the last good checkpoint is"
    CheckpointStore(tmp_path / "two", shared=False).save(3, STATE, {})
    assert not (tmp_path / "two").exists()


def test_what_fails_in_one_process_fails_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes.together(lambda: "done", "do it") == "done"
    monkeypatch.setattr(processes, "all_agree", lambda number: False)
    with pytest.raises(RunError, match=r"^another process could not do it; its message says why$"):
        processes.together(lambda: "done", "do it")

    def fail() -> None:
        raise RunError("my own")

    with pytest.raises(RunError, match=r"^my own$"):
        processes.together(fail, "do it")


@pytest.mark.parametrize(
    "command",
    [
        f"--checkpoint-dir {URL} --run-name new --lr 0.01 --length 4 --profile",
        f"--resume {URL}/run --total-timesteps {10 * STEPS_PER_UPDATE} --lr 0.02",
        f"--resume latest --checkpoint-dir {URL} --auto-tune",
        f"--resume {URL}/run --checkpoint-dir {URL}/copies --run-name other",
        f"--resume {URL}/run --checkpoint-dir PATH",
    ],
)
def test_all_do_what_the_first_process_has_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    empty_bucket(monkeypatch, tmp_path / "one")
    if "--resume" in command:
        assert begin(2) == 0
    arguments = command.replace("PATH", str(tmp_path / "shared")).split()
    said: list[str] = []

    def say(make: Callable[[], str], what: str) -> str:
        said.append(make())
        return said[-1]

    monkeypatch.setattr(plan, "is_multiprocess", lambda: True)
    monkeypatch.setattr(plan, "text_from_first", say)
    first: Plan[Any] = make_plan(DEFAULTS, arguments, "")
    as_other(monkeypatch, plan)
    monkeypatch.setattr(plan, "text_from_first", lambda make, what: said[-1])
    # With no bucket, no disk, and the settings of another day.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
    set_objects({})
    other: Plan[Any] = make_plan(DEFAULTS, ["--checkpoint-dir", "memory://b/x", "--lr", "0.3"], "")
    assert other.storage.store is None
    assert (other.storage.folder, other.storage.url) == (first.storage.folder, first.storage.url)
    assert other.folder == (first.folder and RunFolder(first.folder.path, shared=False))
    assert (other.config, other.update, other.copy) == (first.config, first.update, first.copy)
    assert first.found_by_first
    assert other.found_by_first
    assert not (tmp_path / "two").exists()

"""W&B: each point once and none missing, whatever happened to the run; and the real package."""

import dataclasses
import inspect
import json
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import wandb
from wandb.proto.wandb_internal_pb2 import Record

import counting
import fake_wandb
from counting import DEFAULTS, STEPS_PER_UPDATE, TASK, flags
from fake_wandb import Server
from kills import Killed
from own_process import python
from ppo_mask.callbacks import _wandb
from ppo_mask.checkpoints import RunDir
from ppo_mask.runner import _main, main
from ppo_mask.training import Callback, Run, TrainState
from same_run import assert_same_run

OFTEN = ("--wandb", "--log-interval", "3", "--save-interval", "4", "--run-name", "run")
EVAL = ("--scored", "2", "--length", "3")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setitem(sys.modules, "wandb", server)
    return server


def train(parent: Path, updates: int, *more: str, code: int = 0) -> Path:
    assert main(TASK, DEFAULTS, flags(parent, updates, *more)) == code
    return parent / "run"


def logged(folder: Path) -> dict[int, dict[str, float]]:
    """The rows that the log in the run's folder makes."""
    rows: dict[int, dict[str, float]] = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        values = json.loads(line)
        step, _ = values.pop("step"), values.pop("update")
        rows.setdefault(step, {}).update(values)
    return rows


def run_id(folder: Path) -> str:
    return json.loads((folder / "wandb.json").read_text())["id"]


def assert_history_is_right(server: Server, folder: Path) -> None:
    assert server.history[run_id(folder)] == logged(folder)
    assert server.dropped == []


def steps_of(artifact: fake_wandb.Artifact) -> set[int]:
    """Those whose checkpoints an artifact has."""
    return {int(x.split("/")[1]) for x in artifact.files if x.endswith("/description.json")}


def test_rows_config_and_checkpoints_arrive(server: Server, tmp_path: Path) -> None:
    folder = train(tmp_path, 6, *OFTEN, *EVAL, "--project", "walks", "--entity", "us")
    assert_history_is_right(server, folder)
    rows = server.history[run_id(folder)]
    assert sorted(rows) == [64, 96, 128, 192]
    assert {"train/lr", "eval/mean_episode_return"} <= rows[192].keys()
    (options,) = server.inits
    assert (options["project"], options["entity"], options["name"]) == ("walks", "us", "run")
    assert options["config"]["environment"] == {"length": 3, "scored": 2}
    model = options["config"]["architecture"]["hyperparameters"]
    assert model["network"]["network"] == "Bias"
    best = RunDir(folder).best()
    assert best is not None
    assert len(server.artifacts) > 1  # Also while the run went on.
    assert steps_of(server.artifacts[-1]) == {6, best.step}
    assert {(x.name, x.type) for x in server.artifacts} == {
        (f"checkpoint-{run_id(folder)}", "model")
    }
    assert server.finished == [(run_id(folder), 0)]


def test_resuming_goes_on_with_the_same_run(server: Server, tmp_path: Path) -> None:
    # The line after update 7 is partial: it is no row, for the one after update 9 says it again.
    folder = train(tmp_path, 7, *OFTEN)
    assert sorted(server.history[run_id(folder)]) == [96, 192]
    train(tmp_path, 12, "--resume", "latest")
    assert len(server.history) == 1
    assert sorted(server.history[run_id(folder)]) == [96, 192, 288, 384]
    assert_history_is_right(server, folder)


def test_what_is_logged_at_a_resume_is_left_out(server: Server, tmp_path: Path) -> None:
    class AtTheStart(Callback):
        def on_start(self, run: Run, state: TrainState) -> None:
            run.log({"mine/size": 1.0})

    task = dataclasses.replace(TASK, callbacks=lambda _: [AtTheStart()])
    for words in (flags(tmp_path, 6, *OFTEN), flags(tmp_path, 12, "--resume", "latest")):
        assert main(task, DEFAULTS, words) == 0
    rows = server.history[run_id(tmp_path / "run")]
    assert [step for step, row in rows.items() if "mine/size" in row] == [0]
    assert server.dropped == []


def test_a_damaged_id_is_one_line(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(tmp_path, 6, *OFTEN)
    (folder / "wandb.json").write_bytes(bytes(40))
    train(tmp_path, 9, "--resume", "latest", code=2)
    assert "error: W&B does not take the run: Expecting value" in capsys.readouterr().err


def kill_at(update: int, parent: Path, *more: str) -> None:
    """A run that is killed after an update: nothing is closed, what waits to be sent is lost."""

    class KillAt(Callback):
        def next_update(self, _: int) -> int | None:
            return update

        def on_chunk(self, run: Run, *_: object) -> None:
            if run.update == update:
                raise Killed

    callbacks = _main.callbacks_for
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_main, "callbacks_for", lambda *a: [*callbacks(*a), KillAt()])
        patch.setattr(_wandb.WandB, "close", lambda self: None)
        with pytest.raises(Killed):
            train(parent, 21, *more)


def test_a_run_killed_beyond_its_last_checkpoint(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    often = (*OFTEN, "--scored", "4", "--log-interval", "1")
    kill_at(10, tmp_path, *often)
    folder = tmp_path / "run"
    assert RunDir(folder).steps()[-1] == 8
    first = run_id(folder)
    assert 9 * STEPS_PER_UPDATE in server.history[first]  # Logged after the checkpoint.
    train(tmp_path, 21, "--resume", "latest", "--lr", "0.5")
    assert_history_is_right(server, folder)
    assert run_id(folder) != first
    assert f"run {first} on W&B has later steps: the whole" in capsys.readouterr().err
    again = train(tmp_path / "whole", 21, *often)
    assert sorted(server.history[run_id(folder)]) == sorted(server.history[run_id(again)])


def test_older_checkpoints_are_deleted_unless_somebody_named_them(
    server: Server, tmp_path: Path
) -> None:
    train(tmp_path, 8, *OFTEN, "--save-interval", "1", "--log-interval", "1")
    server.artifacts[-1].aliases.append("mine")
    train(tmp_path, 21, "--resume", "latest")
    named, replaced, newest = server.versions(server.artifacts[0].name)
    assert (8 in steps_of(named), named.aliases) == (True, ["mine"])
    assert (20 in steps_of(replaced), replaced.aliases) == (True, [])  # Until the next is saved.
    assert (21 in steps_of(newest), newest.aliases) == (True, ["latest"])


def test_a_run_whose_machine_is_gone_is_resumed_from_its_artifact(
    server: Server, tmp_path: Path
) -> None:
    often = (*OFTEN, "--scored", "4", "--log-interval", "1", "--save-interval", "2")
    whole = train(tmp_path / "whole", 21, *often)
    kill_at(11, tmp_path / "gone", *often)
    known = run_id(tmp_path / "gone" / "run")
    newest = server.versions(f"checkpoint-{known}")[-1]
    assert 10 in steps_of(newest)
    shutil.rmtree(tmp_path / "gone")

    folder = Path(newest.download(str(tmp_path / "new" / "run")))
    train(tmp_path / "new", 21, "--resume", "latest")
    assert run_id(folder) == known
    assert_history_is_right(server, folder)
    assert_same_run(RunDir(whole), RunDir(folder))


def test_rows_that_were_lost_are_sent_again(server: Server, tmp_path: Path) -> None:
    kill_at(8, tmp_path, *OFTEN)
    folder = tmp_path / "run"
    # The last row was waiting for the next when the process was killed.
    assert sorted(server.history[run_id(folder)]) == [96]
    train(tmp_path, 12, "--resume", "latest")
    assert len(server.history) == 1
    assert_history_is_right(server, folder)


@pytest.mark.parametrize(("to", "kept"), [(4, 1), (2, 0)])
def test_rewinding(server: Server, tmp_path: Path, to: int, kept: int) -> None:
    folder = train(tmp_path, 6, *OFTEN, "--save-interval", "2")
    first, checkpoint = run_id(folder), str(RunDir(folder).checkpoint(to).path)
    train(tmp_path, 9, "--resume", checkpoint, "--rewind", "--lr", "0.5")
    assert run_id(folder) != first
    assert_history_is_right(server, folder)
    rates = [row["train/lr"] for row in server.history[run_id(folder)].values()]
    assert rates == pytest.approx([*[3e-3] * kept, *[0.5] * (3 - kept)])


def test_a_run_that_takes_up_wandb_late_has_its_whole_history(
    server: Server, tmp_path: Path
) -> None:
    folder = train(tmp_path, 6, *OFTEN[1:])
    assert server.history == {}
    train(tmp_path, 12, "--resume", "latest", "--wandb", "--no-artifact")
    assert server.artifacts == []
    assert sorted(server.history[run_id(folder)]) == [96, 192, 288, 384]
    assert_history_is_right(server, folder)


@pytest.mark.parametrize(
    ("lacks", "message"),
    [
        ("package", "--wandb needs the package wandb: pip install 'ppo-mask[wandb]'"),
        ("account", "--wandb: No API key configured. (WANDB_MODE=offline does without"),
        ("permission", "W&B does not take the run: permission denied\n"),
    ],
)
def test_what_is_lacking_is_one_line(
    server: Server, tmp_path: Path, monkeypatch, capsys, lacks: str, message: str
) -> None:
    server.lacks = lacks
    if lacks == "package":
        monkeypatch.setitem(sys.modules, "wandb", None)
    train(tmp_path, 1, "--wandb", code=2)
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1
    assert lacks == "permission" or not any(tmp_path.iterdir())


def test_the_stand_in_asks_for_nothing_that_the_package_does_not_have() -> None:
    for ours, theirs, names in (
        (fake_wandb.Server, wandb, ("init", "login")),
        (fake_wandb.Run, wandb.Run, ("log", "finish")),
        (fake_wandb.Artifact, wandb.Artifact, ("__init__", "add_dir", "add_file", "delete")),
        (fake_wandb.Api, wandb.Api, ("artifacts",)),
    ):
        for name in names:
            asked = set(inspect.signature(getattr(ours, name)).parameters) - {"self"}
            assert asked <= set(inspect.signature(getattr(theirs, name)).parameters)
    for name in ("step", "offline", "entity", "project"):
        assert isinstance(inspect.getattr_static(wandb.Run, name), property)
    assert isinstance(inspect.getattr_static(wandb.Artifact, "aliases"), property)
    assert issubclass(wandb.Error, Exception)


def offline_records(content: bytes) -> Iterator[bytes]:
    """What is in an offline run's file: LevelDB's log format after 7 bytes of W&B's own."""
    at, record = 7, b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:  # No header fits into what is left of the block.
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # Whole, or the last part.
            yield record
            record = b""


def offline_rows(folder: Path) -> list[tuple[int, dict[str, float]]]:
    (file,) = folder.glob("run-*.wandb")
    rows: list[tuple[int, dict[str, float]]] = []
    for record in map(Record.FromString, offline_records(file.read_bytes())):
        if record.WhichOneof("record_type") == "history":
            items = {x.key or x.nested_key[0]: x.value_json for x in record.history.item}
            values = {k: json.loads(v) for k, v in items.items() if not k.startswith("_")}
            rows.append((int(items["_step"]), values))
    return rows


@pytest.mark.slow
def test_the_real_package_offline(tmp_path: Path) -> None:
    offline = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}

    def run(updates: int, *more: str) -> None:
        python(counting.__file__, *flags(tmp_path, updates, *more), **offline)

    run(6, *OFTEN, *EVAL)
    run(12, "--resume", "latest")
    folder = tmp_path / "run"
    newest = (folder / "wandb" / "latest-run").resolve()
    assert newest.name.endswith(run_id(folder))
    # Offline, W&B cannot say what it has: each process writes the history from its beginning.
    rows = offline_rows(newest)
    assert [step for step, _ in rows] == sorted(logged(folder))
    assert dict(rows) == logged(folder)
    assert len(list((folder / "wandb").glob("offline-run-*"))) == 2

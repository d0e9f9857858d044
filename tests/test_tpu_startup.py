"""The startup script of a TPU VM, on this machine: Google's programs, the package for buckets and
the installation are stand-ins, training is real. A VM is preempted; the next one, which has nothing
but the bucket, goes on.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from waiting import PATIENCE, meeting_place, wait_until

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "examples" / "tpu_startup.sh"
FLAGS = "--num-envs 16 --num-steps 8 --hidden-dim 16 --num-layers 1 --log-interval 1 "
FLAGS += "--save-interval 5 --total-timesteps"

# What stands in for the programs of a VM. A bucket gs://x/y is the folder of that name.
CURL = 'cat "$METADATA/${!###*/}"'
GIT = f'ln -s "{ROOT}" "${{!#}}"'
PYTHON = f"""
case "$*" in
    *"uv venv"*)
        mkdir -p .venv/bin && printf '#!/bin/sh\\nexec {sys.executable} "$@"\\n' > .venv/bin/python
        chmod +x .venv/bin/python ;;
esac
"""
GCLOUD = """
here() { case "$1" in gs://*) echo "$BUCKETS/${1#gs://}" ;; *) echo "$1" ;; esac }
from=$(here "${@: -2:1}") to=$(here "${@: -1}")
case "$2" in
    ls) ls $to ;;
    mv) mv "$from" "$to" ;;
    rsync) [ -d "$from" ] && mkdir -p "$to" && cp -r "$from/." "$to" ;;
    *) exit 2 ;;
esac
"""
# What stands in for the package gcsfs.
GCSFS = """
import os
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

class Folder(LocalFileSystem):
    # An object is there with all of its content, or not at all.
    def pipe_file(self, path, value, **options):
        super().pipe_file(f"{path}.new", value, **options)
        os.replace(f"{path}.new", path)

class GCSFileSystem(DirFileSystem):
    protocol = ("gs", "gcs")

    def __init__(self, **options):
        super().__init__(os.environ["BUCKETS"], Folder(auto_mkdir=True), **options)

    @classmethod
    def _strip_protocol(cls, path):
        return path.removeprefix("gs://").rstrip("/")
"""


_BOOTED: list[subprocess.Popen[str]] = []


def vm(
    tmp_path: Path, folder: str, flags: str, worker: int = 0, coordinator: str | None = None
) -> subprocess.Popen[str]:
    """A VM with that folder as its disk boots; with a coordinator it is one of two of a slice."""
    programs = {"curl": CURL, "git": GIT, "python3": PYTHON, "gcloud": GCLOUD}
    # Another VM may be running its own: a program cannot be written to while it runs.
    stand_ins, metadata = tmp_path / f"{folder}-bin", tmp_path / f"{folder}-metadata"
    for place in (stand_ins, metadata):
        place.mkdir(exist_ok=True)
    for name, text in programs.items():
        (stand_ins / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (stand_ins / name).chmod(0o755)
    (stand_ins / "gcsfs.py").write_text(GCSFS)
    said = {"bucket": "gs://b/runs", "run-name": "first", "flags": flags, "source": "https://a.b/c"}
    environment = {
        **os.environ,
        "PATH": f"{stand_ins}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(stand_ins), *sys.path[1:]]),
        "METADATA": str(metadata),
        "BUCKETS": str(tmp_path / "buckets"),
        "PPO_MASK_FOLDER": str(tmp_path / folder),
        "PPO_MASK_COPY_SECONDS": "1",
        "PPO_MASK_RETRY_SECONDS": "1",
    }
    if coordinator is not None:
        said |= {"agent-worker-number": str(worker), "worker-network-endpoints": "a:1:a,b:2:b"}
        environment |= {"JAX_COORDINATOR_ADDRESS": coordinator, "JAX_NUM_PROCESSES": "2"}
        environment |= {"JAX_PROCESS_ID": str(worker)}
    for name, text in said.items():
        (metadata / name).write_text(text)
    out = (tmp_path / f"{folder}.log").open("w")
    own = {"text": True, "start_new_session": True}
    _BOOTED.append(subprocess.Popen([SCRIPT], env=environment, stdout=out, stderr=out, **own))
    return _BOOTED[-1]


def lose(*machines: subprocess.Popen[str]) -> None:
    """Machines are gone, at once."""
    for machine in machines:
        if machine.poll() is None:
            os.killpg(machine.pid, signal.SIGKILL)
        machine.wait()


RUN = ("buckets", "b", "runs", "first")


@pytest.fixture(autouse=True)
def machines(tmp_path: Path) -> Iterator[None]:
    """All are lost in the end, for the script tries again for ever."""
    # A VM that was lost before its first checkpoint left no more than this.
    tmp_path.joinpath(*RUN).mkdir(parents=True)
    tmp_path.joinpath(*RUN, "config.yaml").touch()
    yield
    lose(*_BOOTED)
    _BOOTED.clear()


def kept(tmp_path: Path) -> tuple[list[int], list[int]]:
    """Checkpoints, and the log's updates, of the run in the bucket."""
    path = tmp_path.joinpath(*RUN)
    try:
        steps = sorted(int(x.parent.name) for x in path.glob("checkpoints/*/description.json"))
        log = (path / "metrics.jsonl").read_text().splitlines() if steps else []
        return steps, [json.loads(line)["update"] for line in log]
    except (FileNotFoundError, json.JSONDecodeError):  # It is just being written.
        return [], []


def assert_finishes(
    tmp_path: Path, updates: int, folders: list[str], coordinator: str | None = None
) -> None:
    """VMs go on to so many updates, of which the log has each once."""
    flags = f"{FLAGS} {updates * 128}"
    machines = [vm(tmp_path, name, flags, x, coordinator) for x, name in enumerate(folders)]
    for name, machine in zip(folders, machines, strict=True):
        assert machine.wait(timeout=PATIENCE) == 0, (tmp_path / f"{name}.log").read_text()
    checkpoints, log = kept(tmp_path)
    assert checkpoints[-1] == updates
    assert log == list(range(1, updates + 1))


@pytest.mark.slow
def test_a_preempted_run_goes_on_from_the_bucket(tmp_path: Path) -> None:
    machine = vm(tmp_path, "one", f"{FLAGS} 100000000")
    wait_until(lambda: kept(tmp_path)[0], [machine])
    machine.send_signal(signal.SIGTERM)
    machine.wait(timeout=PATIENCE)
    runs = tmp_path.joinpath(*RUN[:-1])
    checkpoints, log = kept(tmp_path)
    done = checkpoints[-1]  # Saved because of the signal.
    assert log[-1] >= done
    assert f"SIGTERM after {done} updates" in (tmp_path / "one.log").read_text()
    assert list((runs / "compiled").iterdir())
    assert len([*runs.glob("first.*")]) == 1

    assert_finishes(tmp_path, done + 10, ["two"])
    # Booted once more when all is done, it does no harm.
    assert_finishes(tmp_path, done + 10, ["two"])


@pytest.mark.nightly
@pytest.mark.slow
def test_a_slice_of_two_hosts_goes_on_when_one_is_rebooted_and_when_both_are_lost(
    tmp_path: Path,
) -> None:
    meet = meeting_place()
    flags = f"{FLAGS} 100000000"
    machines = [vm(tmp_path, f"one{x}", flags, x, meet) for x in (0, 1)]
    wait_until(lambda: kept(tmp_path)[0], machines)
    machines[1].send_signal(signal.SIGTERM)
    assert machines[1].wait(timeout=PATIENCE) == 143
    (stopped_at,) = kept(tmp_path)[0][-1:]
    assert f"SIGTERM after {stopped_at} updates" in (tmp_path / "one0.log").read_text()
    machines[1] = vm(tmp_path, "again1", flags, 1, meet)  # With an empty disk.
    wait_until(lambda: kept(tmp_path)[0][-1:] > [stopped_at + 5], machines)
    lose(*machines)
    assert f", from update {stopped_at}\n" in (tmp_path / "one0.log").read_text()
    done = kept(tmp_path)[0][-1]

    assert_finishes(tmp_path, done + 10, ["two0", "two1"], meet)
    assert not (tmp_path / "two1" / "ppo_mask").exists()
    assert len([*tmp_path.joinpath(*RUN[:-1]).glob("first.*")]) == 1

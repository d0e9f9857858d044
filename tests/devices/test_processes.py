"""Two processes, which stand in for two hosts, train together."""

import json
import signal

import pytest

from hosts import finish, start, updates
from ppo_mask.checkpoints import RunFolder, read_arrays
from ppo_mask.devices.processes import connect
from ppo_mask.errors import RunError
from waiting import PATIENCE, wait_until


def _new(parent):
    return "--checkpoint-dir", str(parent), "--run-name", "run"


def _log(folder):
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return [{k: v for k, v in x.items() if k != "train/steps_per_second"} for x in lines]


@pytest.mark.nightly
@pytest.mark.optimized
def test_killed_runs_resume_with_two_processes_and_with_one(tmp_path):
    folder = RunFolder(tmp_path / "run")
    saving = ("--save-interval", "4", "--log-interval", "2", "--eval-interval", "4")
    both = start(*_new(tmp_path), *saving, *updates(100_000))
    wait_until(lambda: (folder.checkpoints.newest() or 0) >= 12, both)
    for process in both:
        process.kill()
    finish(both, -signal.SIGKILL)
    killed_at = folder.checkpoints.steps()[-1]

    resume = ("--resume", str(folder.path))
    first, second = finish(start(*resume, *updates(killed_at + 10)))
    assert "4 x cpu" in first[0]
    assert "4 x cpu" not in second[0]  # One of them talks.
    with_two = folder.checkpoints.steps()[-1]
    assert with_two == killed_at + 10

    (alone,) = finish(start(*resume, *updates(with_two + 10), count=1))
    assert "note: saved on 4 x cpu, resumed on 2 x cpu" in alone[0]
    last = folder.checkpoints.steps()[-1]
    assert last == with_two + 10
    logged = [line["update"] for line in _log(folder) if "train/entropy" in line]
    assert logged == list(range(2, last + 1, 2))

    # And all that is what one process makes of it.
    (tmp_path / "alone").mkdir()
    finish(start(*_new(tmp_path / "alone"), *saving, *updates(last), count=1))
    other = RunFolder(tmp_path / "alone" / "run")
    for ours, theirs in zip(_log(folder), _log(other), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)
    ours = read_arrays(folder.checkpoints.path(last))
    theirs = read_arrays(other.checkpoints.path(last))
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert array == pytest.approx(theirs[name], abs=1e-4), name


@pytest.mark.optimized
def test_a_signal_to_one_stops_both(tmp_path):
    folder = RunFolder(tmp_path / "run")
    both = start(*_new(tmp_path), "--log-interval", "2", *updates(100_000))
    wait_until(lambda: folder.metrics.exists() and folder.metrics.read_text(), both)
    both[1].send_signal(signal.SIGTERM)
    finish(both, 128 + signal.SIGTERM)
    assert len(folder.checkpoints.steps()) == 1


@pytest.mark.optimized
def test_a_lost_process_ends_the_other_and_the_run_resumes(tmp_path):
    folder = RunFolder(tmp_path / "run")
    both = start(*_new(tmp_path), "--save-interval", "4", *updates(100_000))
    wait_until(lambda: folder.checkpoints.steps(), both)
    both[1].kill()
    out, err = both[0].communicate(timeout=PATIENCE)
    # In its own words where a collective fails first, in JAX's where the heartbeat does.
    assert both[0].returncode in (1, -signal.SIGABRT)
    assert "another process of this run is gone" in err or "another task died" in err
    assert f"resume with --resume {folder.path}" in out
    last = folder.checkpoints.steps()[-1]
    finish(start("--resume", str(folder.path), *updates(last + 4)))
    assert folder.checkpoints.steps()[-1] == last + 4


@pytest.mark.parametrize("given", [{"JAX_NUM_PROCESSES": "2"}, {"JAX_PROCESS_ID": "0"}])
def test_half_a_description_of_the_others_is_refused(given, monkeypatch):
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RunError, match="go together: set all three or none"):
        connect(True)


def test_no_processes_are_awaited_where_none_are_expected():
    connect(None)
    connect(False)

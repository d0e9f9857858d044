"""The limits of a container, as the kernel tells them: control groups of both versions."""

import math
import os
from pathlib import Path
from unittest.mock import Mock

import jax
import pytest

from ppo_mask.devices import containers, cpu
from ppo_mask.runner import _tune

_ROOT, _OWN = "/sys/fs/cgroup", "/proc/self/cgroup"


@pytest.fixture
def files(monkeypatch):
    """The files that there are."""
    there: dict[str, str] = {}

    def read(path, **_):
        if str(path) not in there:
            raise FileNotFoundError
        return there[str(path)]

    monkeypatch.setattr(Path, "read_text", read)
    return there


def test_a_machine_without_groups_has_no_limits(files):
    assert containers.core_limit() == containers.free_memory() == math.inf


@pytest.mark.parametrize(
    ("own", "more", "cores"),
    [
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 2.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/a/b\n", {"a/b/cpu.max": "400000 100000\n", "a/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/a\n", {"b/cpu.max": "100000 100000\n"}, math.inf),
        ("0::/../a\n", {"cpu.max": "100000 100000\n"}, 1),
        *[
            (own, {f"cpu/{at}cpu.cfs_quota_us": quota, f"cpu/{at}cpu.cfs_period_us": "100000\n"}, n)
            for own, at, quota, n in [
                ("2:cpu,cpuacct:/a\n", "", "300000\n", 3),
                ("2:cpu,cpuacct:/a\n", "a/", "300000\n", 3),
                ("2:memory:/a\n", "a/", "300000\n", math.inf),
                ("2:cpu,cpuacct:/a\n", "a/", "-1\n", math.inf),
            ]
        ],
    ],
)
def test_the_smallest_quota_of_the_groups_counts(own, more, cores, files):
    files |= {_OWN: own, **{f"{_ROOT}/{name}": text for name, text in more.items()}}
    assert containers.core_limit() == cores


@pytest.mark.parametrize(
    ("own", "more", "free"),
    [
        ("0::/a\n", {"a/memory.max": "900\n", "a/memory.current": "200\n"}, 700),
        ("0::/a\n", {"a/memory.max": "max\n", "a/memory.current": "200\n"}, math.inf),
        ("0::/\n", {"memory.max": "900\n", "memory.current": "1000\n"}, -100),
        (
            "0::/\n",
            {
                "memory.max": "900\n",
                "memory.current": "800\n",
                "memory.stat": "active_file 5\ninactive_file 400\n",
            },
            500,
        ),
        (
            "5:memory:/a\n",
            {"memory/memory.limit_in_bytes": "900\n", "memory/memory.usage_in_bytes": "200\n"},
            700,
        ),
    ],
)
def test_the_least_memory_of_the_groups_counts(own, more, free, files):
    files |= {_OWN: own, **{f"{_ROOT}/{name}": text for name, text in more.items()}}
    assert containers.free_memory() == free


@pytest.mark.parametrize(("limit", "cores"), [(math.inf, 8), (2.9, 2), (0.5, 1), (64.0, 8)])
def test_there_are_no_more_devices_than_the_quota(limit, cores, monkeypatch):
    monkeypatch.setattr(cpu, "core_limit", lambda: limit)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    assert cpu._cores() == cores


def test_auto_tune_stays_within_the_container(monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: [Mock(memory_stats=lambda: None)])
    monkeypatch.setattr(_tune, "free_memory", lambda: 1000.0)
    assert _tune._memory() == 800


def test_auto_tune_knows_the_memory_where_no_system_says_what_is_free(monkeypatch):
    names = {name: n for name, n in os.sysconf_names.items() if name != "SC_AVPHYS_PAGES"}
    monkeypatch.setattr(os, "sysconf_names", names)  # As on macOS.
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 10, "SC_PAGE_SIZE": 100}.__getitem__)
    monkeypatch.setattr(jax, "local_devices", lambda: [Mock(memory_stats=lambda: None)])
    assert _tune._memory() == 800

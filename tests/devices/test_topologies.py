"""TPUs and GPUs by name."""

import os
from math import prod
from pathlib import Path
from typing import Any

import jax
import pytest

from ppo_mask.devices import topologies
from ppo_mask.devices.topologies import NAMES, devices_of, find
from ppo_mask.errors import RunError


@pytest.mark.parametrize(
    ("name", "family", "shape", "hosts"),
    [
        # The number in a name is of cores here,
        ("v4-8", "v4", (2, 2, 1), 1),
        ("V4-16", "v4", (2, 2, 2), 2),
        ("v4-128", "v4", (4, 4, 4), 16),
        ("v5p-8", "v5p", (2, 2, 1), 1),
        # and of chips there.
        ("v5e-1", "v5e", (1, 1), 1),
        ("v5litepod-4", "v5e", (2, 2), 1),
        ("v6e-8", "v6e", (2, 4), 1),
        ("v6e-16", "v6e", (4, 4), 4),
        ("v4:2x2x1", "v4", (2, 2, 1), 1),
        ("v4:4x4x8", "v4", (4, 4, 8), 32),
        ("v5e:4x8", "v5e", (4, 8), 8),
    ],
)
def test_names(name: str, family: str, shape: tuple[int, ...], hosts: int) -> None:
    found = find(name)
    assert found.arrangement == f"{family}:{'x'.join(map(str, shape))}"
    assert (found.name, found.num_chips, found.num_hosts) == (name, prod(shape), hosts)


@pytest.mark.parametrize(
    ("name", "arrangement", "hosts"),
    [
        ("h100", "1x1x1", 1),
        ("H100:4", "1x1x4", 1),
        ("a100-80:8", "1x1x8", 1),
        ("t4:16", "1x2x8", 2),
    ],
)
def test_names_of_gpus(name: str, arrangement: str, hosts: int) -> None:
    found = find(name)
    assert found.platform == "cuda"
    assert found.options["topology"] == arrangement
    assert (found.num_chips, found.num_hosts) == (prod(map(int, arrangement.split("x"))), hosts)


def test_names_that_are_listed_are_known() -> None:
    sizes = {name: find(name).num_chips for name in NAMES}
    assert sizes["v4-8"] == sizes["v5p-8"] == sizes["v5e-4"] == sizes["v6e-4"] == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v4-9", r"there is no TPU or GPU v4-9: did you mean v4-8\? \(there are v4-8 to v4-128, "),
        ("v4", "did you mean v4-8"),
        ("v4:2x2", "there is no TPU or GPU v4:2x2"),
        ("v4:0x2x2", "there is no TPU or GPU v4:0x2x2"),
        ("v5e:2x2x1", "there is no TPU or GPU v5e:2x2x1"),
        ("v4-8x", "did you mean v4-8"),
        ("v5e-3", "there is no TPU or GPU v5e-3: did you mean v5e-"),
        ("nothing like it", r"there is no TPU or GPU nothing like it \(there are"),
        ("h100:0", r"there is no TPU or GPU h100:0: did you mean h100\? .* and t4, l4, a100"),
        ("h100:9", "there is no TPU or GPU h100:9: did you mean h100"),
        ("a100-40", "did you mean a100-80"),
        ("v100", "there is no TPU or GPU v100: did you mean h100"),
    ],
)
def test_a_wrong_name_is_one_line(name: str, message: str) -> None:
    with pytest.raises(RunError, match=message) as error:
        find(name)
    assert "\n" not in str(error.value)


def test_what_a_chip_has_of_memory() -> None:
    names = ("v4-8", "v5e-8", "v5p-8", "v6e-8", "t4", "a100", "h100", "h200")
    found = [round(find(name).memory / 2**30) for name in names]
    assert found == [31, 16, 96, 31, 15, 39, 79, 141]


def test_without_a_compiler_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topologies, "find_spec", lambda _: None)
    with pytest.raises(RunError, match=r"v4-8 needs libtpu .*pip install 'ppo-mask\[tpu\]'"):
        devices_of(find("v4-8"))
    with pytest.raises(RunError, match=r"h100 needs JAX's CUDA .*pip install 'ppo-mask\[cuda\]'"):
        devices_of(find("h100"))


def test_a_folder_called_libtpu_is_not_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libtpu").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(topologies, "find_spec", lambda _: _Namespace())
    with pytest.raises(RunError, match="needs libtpu"):
        devices_of(find("v4-8"))


class _Namespace:
    origin = None


class _Installed:
    origin = "libtpu/__init__.py"


def test_what_libtpu_wants_is_set_only_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def start(name: str, platform: str, **options: Any) -> Any:
        seen.update(name=name, platform=platform, options=options, variables=dict(os.environ))
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: not today\nand more")

    monkeypatch.setattr(topologies, "find_spec", lambda _: _Installed())
    monkeypatch.setattr(topologies.topologies, "get_topology_desc", start)
    monkeypatch.setenv("TPU_WORKER_ID", "3")
    before = dict(os.environ)
    message = "libtpu cannot compile for v5litepod-1: INVALID_ARGUMENT: not today$"
    with pytest.raises(RunError, match=message):
        devices_of(find("v5litepod-1"))
    assert dict(os.environ) == before
    assert (seen["name"], seen["platform"]) == ("v5e:1x1", "tpu")
    assert seen["options"] == {"chips_per_host_bounds": [1, 1, 1]}
    assert seen["variables"]["TPU_SKIP_MDS_QUERY"] == "1"
    assert seen["variables"]["TPU_WORKER_ID"] == "0"
    with pytest.raises(RunError):
        devices_of(find("v4-16"))
    assert (seen["name"], seen["options"]) == ("v4:2x2x2", {"chip_config_name": "megacore"})

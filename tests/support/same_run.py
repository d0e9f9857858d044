"""What two runs must have in common to be the same: for tests of stopping and resuming."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tensorboardX.proto.event_pb2 import Event

from ppo_mask.checkpoints import Checkpoint, RunDir
from ppo_mask.checkpoints._checkpoint import named_arrays


def log(folder: RunDir) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return [{k: v for k, v in x.items() if k != "train/steps_per_second"} for x in lines]


def tensorboard_events(directory: Path) -> Iterator[Event]:
    for path in sorted(directory.iterdir()):
        content, at = path.read_bytes(), 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            yield Event.FromString(content[at + 12 : at + 12 + length])
            at += 16 + length


def tensorboard_points(folder: RunDir) -> list[tuple[int, str]]:
    events = tensorboard_events(folder.tensorboard)
    return [(event.step, value.tag) for event in events for value in event.summary.value]


def newest(folder: RunDir) -> Checkpoint:
    return folder.checkpoint()


def assert_same_run(one: RunDir, other: RunDir) -> None:
    assert newest(one).step == newest(other).step
    ours, theirs = newest(one).arrays(), newest(other).arrays()
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name, strict=True)
    assert log(one) == log(other)
    assert sorted(tensorboard_points(one)) == sorted(tensorboard_points(other))
    wanted = [(x["step"], name) for x in log(one) for name in x if name not in ("step", "update")]
    wanted += [(x["step"], "train/steps_per_second") for x in log(one) if "train/mean_reward" in x]
    assert sorted(tensorboard_points(one)) == sorted(wanted)


def assert_same(one: Any, other: Any) -> None:
    """Two trees are equal in structure, dtypes and bits."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for name, leaf in named_arrays(one).items():
        twin = named_arrays(other)[name]
        assert leaf.dtype == twin.dtype, name
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf, twin = jax.random.key_data(leaf), jax.random.key_data(twin)
        assert np.asarray(leaf).tobytes() == np.asarray(twin).tobytes(), name

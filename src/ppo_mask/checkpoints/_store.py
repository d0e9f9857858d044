"""Checkpoints on a disk: named arrays written by Orbax, and a description in JSON.

The checkpoint of step ``n`` is the folder ``n``. A checkpoint is complete if and only if it
contains ``description.json``, which is written last and deleted first. This description holds the
shape, dtype and checksum of every array. A save writes the folder under a temporary name, reads the
arrays back, compares them, and renames the folder. Loading reads only arrays and JSON, and runs no
code from a checkpoint.

Of several processes, process 0 writes, and the other processes wait for process 0; every process
can read.
"""

import itertools
import json
import math
import secrets
import shutil
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, SupportsIndex, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from ppo_mask.checkpoints._files import flush, flush_folder
from ppo_mask.devices.processes import is_process_0, on_process_0
from ppo_mask.devices.sharding import to_host
from ppo_mask.errors import RunError, check_at_least, first_line, warn
from ppo_mask.jax_tools import differences

Tree = TypeVar("Tree")

DESCRIPTION = "description.json"
ARRAYS = "arrays"
_FORMAT = 3
_SAVING = ".saving-"


class CheckpointStore:
    """The checkpoints of one run, in one folder.

    Attributes:
        directory: the folder; the first save makes it.
        keep: the number of newest checkpoints to keep, besides the checkpoint with the best score.
    """

    directory: Path
    keep: int

    def __init__(self, directory: Path, keep: SupportsIndex = 3) -> None:
        check_at_least(1, keep=int(keep))
        self.directory = directory.absolute()
        self.keep = int(keep)

    def path(self, step: int) -> Path:
        """Returns the path of a step's checkpoint, whether the checkpoint exists or not."""
        return self.directory / str(step)

    def steps(self) -> list[int]:
        """Lists the steps of all complete checkpoints, in order."""
        found = (path.parent.name for path in self.directory.glob(f"*/{DESCRIPTION}"))
        return sorted(int(name) for name in found if name.isdecimal())

    def newest(self) -> int | None:
        """Returns the step of the newest checkpoint, or None if there is no checkpoint."""
        return max(self.steps(), default=None)

    def best(self) -> int | None:
        """Returns the step of the checkpoint with the best score, or None if there is no score.

        A score from an evaluation beats any score from training, since the two are not comparable.
        Of checkpoints with equal scores, the newest is the best.
        """
        return max(ranks := self._ranks(), key=lambda step: (ranks[step], step), default=None)

    def would_be_best(self, score: float, evaluated: bool) -> bool:
        """Whether a checkpoint with this score would be the best; see :meth:`save`."""
        rank = _rank(score, evaluated)
        return rank is not None and all(rank >= other for other in self._ranks().values())

    def what_is_kept(self) -> str:
        """Names the newest checkpoint, for the end of an error message."""
        newest = self.newest()
        if not is_process_0():
            return "process 0 says what the last good checkpoint is"
        if newest is None:
            return "nothing had been saved yet (--save-interval saves every so many updates)"
        return f"the last good checkpoint is {self.path(newest)}"

    def save(
        self,
        step: int,
        state: Any,
        description: Mapping[str, Any],
        score: float | None = None,
        evaluated: bool = False,
    ) -> Path:
        """Writes a checkpoint, then deletes older ones.

        If several processes share the state, all of them must call this method; process 0 writes.

        Args:
            step: the checkpoint's number, which must be new.
            state: any tree; only its arrays are saved.
            description: anything JSON can hold.
            score: how good the state is; the checkpoint with the highest score is kept.
            evaluated: whether the score comes from an evaluation of exactly this state.

        Returns:
            The checkpoint's folder.

        Raises:
            RunError: the checkpoint cannot be written; older ones stay as they are.
        """
        scored = {"score": score, "evaluated": evaluated}
        write_checkpoint(self.path(step), state, {**description, **scored})
        if is_process_0():
            try:
                self._prune()
            except OSError as error:
                warn(f"cannot delete older checkpoints of {self.directory}: {error.strerror}")
        return self.path(step)

    def discard_after(self, step: int) -> None:
        """Deletes all checkpoints of later steps, the latest first."""
        for later in reversed(self.steps()):
            if later > step:
                _delete(self.path(later))

    def clean(self) -> None:
        """Deletes checkpoints that a killed process left partly written or partly deleted."""
        for path in self.directory.glob("*"):
            if path.name.startswith(_SAVING) or (path.name.isdecimal() and _is_half_deleted(path)):
                shutil.rmtree(path, ignore_errors=True)

    def _ranks(self) -> dict[int, tuple[bool, float]]:
        """Returns the rank of each checkpoint with a score, by step; the highest is the best."""
        ranks: dict[int, tuple[bool, float]] = {}
        for step in self.steps():
            with suppress(RunError):  # A damaged checkpoint is never the best.
                about = read_description(self.path(step))
                rank = _rank(about.get("score"), about.get("evaluated", False))
                ranks |= {} if rank is None else {step: rank}
        return ranks

    def _prune(self) -> None:
        best = self.best()
        for step in self.steps()[: -self.keep]:
            if step != best:
                _delete(self.path(step))


def write_checkpoint(path: Path, state: Any, description: Mapping[str, Any]) -> None:
    """Writes one checkpoint; see :meth:`CheckpointStore.save`.

    Raises:
        RunError: the checkpoint cannot be written, or differs when read back; the new files have
            been deleted.
    """
    leaves = named_arrays(state)
    # Random keys become their key data. An array that is sharded over processes is gathered whole
    # on each process.
    arrays = {
        name: to_host(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        for name, leaf in leaves.items()
    }
    described = {
        name: _describe(leaf) | {"crc32": _checksum(arrays[name])} for name, leaf in leaves.items()
    }
    about = {**description, "format": _FORMAT, "time": time.time(), "arrays": described}

    def write() -> None:
        from ppo_mask.checkpoints import _orbax  # Imported here, since it takes long.

        # Each try has a new name, because after a failure Orbax may still be writing to the old
        # folder.
        unread = path.with_name(f"{_SAVING}{secrets.token_hex(4)}")
        try:
            unread.mkdir(parents=True)
            # Orbax refuses arrays without elements; the description holds their shapes.
            _orbax.write(unread / ARRAYS, {n: x for n, x in arrays.items() if x.size})
            _read_arrays(unread, described, list(described))
            (unread / DESCRIPTION).write_text(json.dumps(about), encoding="utf-8")
            flush(unread)
            if _is_half_deleted(path):
                shutil.rmtree(path)
            unread.rename(path)
            flush_folder(path.parent)
        except Exception as error:
            shutil.rmtree(unread, ignore_errors=True)
            raise RunError(f"cannot save {path}: {_orbax.in_short(error)}") from error

    on_process_0(write, f"save {path}")


def read_description(path: Path) -> dict[str, Any]:
    """Reads a checkpoint's description; see :meth:`CheckpointStore.save`.

    Raises:
        RunError: there is no complete checkpoint, or the description is damaged.
    """
    try:
        about = json.loads((path / DESCRIPTION).read_bytes())
        if not isinstance(about, dict):
            raise ValueError(f"{DESCRIPTION} is none")
    except (FileNotFoundError, NotADirectoryError) as error:
        why = f": it has no {DESCRIPTION}" if path.is_dir() else ""
        raise RunError(f"there is no checkpoint {path}{why}") from error
    except (OSError, ValueError) as error:
        raise RunError(f"checkpoint {path} is damaged: {first_line(error)}") from error
    description = cast(dict[str, Any], about)
    if description.get("format") != _FORMAT:
        raise RunError(
            f"checkpoint {path} has format {description.get('format')}, this version of ppo_mask "
            f"reads format {_FORMAT}"
        )
    return description


def restore(path: Path, like: Tree, prefix: str = "") -> Tree:
    """Restores a tree: arrays from the checkpoint, and everything else from ``like``.

    Args:
        path: the checkpoint's path.
        like: a tree of the same structure, shapes and dtypes; the arrays in the tree may be
            ``jax.ShapeDtypeStruct``.
        prefix: precedes the names of the arrays of ``like`` in the checkpoint; for the network in a
            ``TrainState``, "model.".

    Raises:
        RunError: there is no checkpoint, or the checkpoint is damaged or does not fit ``like``.
    """
    described: dict[str, dict[str, Any]] = read_description(path)["arrays"]
    wanted = {prefix + name: leaf for name, leaf in named_arrays(like).items()}
    _compare(path, described, wanted, whole=not prefix)
    arrays = _read_arrays(path, described, list(wanted))
    leaves = [_from_numpy(arrays[name], described[name], leaf) for name, leaf in wanted.items()]
    dynamic, static = eqx.partition(like, _is_array)
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(dynamic), leaves), static)


def read_arrays(path: Path, names: Sequence[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Reads all or some of a checkpoint's arrays by name, and verifies their checksums.

    Random keys are returned as their key data.

    Raises:
        RunError: there is no checkpoint, or the checkpoint is damaged.
    """
    described: dict[str, dict[str, Any]] = read_description(path)["arrays"]
    return _read_arrays(path, described, list(described) if names is None else names)


def _read_arrays(
    path: Path, described: Mapping[str, Mapping[str, Any]], names: Sequence[str]
) -> dict[str, npt.NDArray[Any]]:
    from ppo_mask.checkpoints import _orbax

    written = [name for name in names if 0 not in described[name]["shape"]]
    try:
        arrays: dict[str, npt.NDArray[Any]] = _orbax.read_arrays(path / ARRAYS, written)
    # Orbax and TensorStore raise errors of many classes for files that they cannot read.
    except Exception as error:
        raise RunError(f"checkpoint {path} is damaged: {_orbax.in_short(error)}") from error
    for name in written:
        if _checksum(arrays[name]) != described[name]["crc32"]:
            raise RunError(f"checkpoint {path} is damaged: {name} is not what was saved")
    empty = {
        name: np.zeros(described[name]["shape"], described[name]["dtype"])
        for name in names
        if name not in arrays
    }
    return {**arrays, **empty}


def named_arrays(tree: Any) -> dict[str, Any]:
    """Names the array leaves of a tree by their paths, such as ``model.actor.0.weight``."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, _is_array))
    named: dict[str, Any] = {}
    for path, leaf in leaves:
        # A tree that is a single array has an empty path.
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "array"
        # Keys may contain dots: in {"a": {"b": x}, "a.b": y} the second array becomes "a.b#2".
        numbered = (f"{name}#{number}" for number in itertools.count(2))
        named[next(x for x in itertools.chain([name], numbered) if x not in named)] = leaf
    return named


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _describe(leaf: Any) -> dict[str, Any]:
    described = {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
    if _is_key(leaf) and eqx.is_array(leaf):
        described["key_implementation"] = str(jax.random.key_impl(leaf))
    return described


def _from_numpy(array: npt.NDArray[Any], described: dict[str, Any], like: Any) -> Any:
    # Copied to buffers that JAX owns, since training donates them.
    leaf = jnp.array(array)
    if _is_key(like):
        leaf = jax.random.wrap_key_data(leaf, impl=described["key_implementation"])
    # Committed to a device only if `like` is; otherwise every program would compile once more.
    bound = isinstance(like, jax.Array) and like.committed
    return jax.device_put(leaf, like.sharding) if bound else leaf


def _checksum(array: npt.NDArray[Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def _compare(
    path: Path, described: Mapping[str, Any], wanted: Mapping[str, Any], whole: bool
) -> None:
    asked = {name: _text(_describe(x)) for name, x in wanted.items()}
    there = {name: _text(x) for name, x in described.items() if whole or name in wanted}
    for name, ours, theirs in differences(asked, there):
        raise RunError(f"checkpoint {path} has {theirs} for {name}, this run asks for {ours}")


def _text(described: Mapping[str, Any]) -> str:
    return f"{described['dtype']}{described['shape']}"


def _rank(score: float | None, evaluated: bool) -> tuple[bool, float] | None:
    return None if score is None or math.isnan(score) else (evaluated, score)


def _is_half_deleted(path: Path) -> bool:
    return path.is_dir() and {each.name for each in path.iterdir()} <= {ARRAYS}


def _delete(path: Path) -> None:
    (path / DESCRIPTION).unlink()
    shutil.rmtree(path, ignore_errors=True)

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
import secrets
import shutil
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from ppo_mask.checkpoints._files import check_path, flush, flush_folder
from ppo_mask.devices.processes import on_process_0
from ppo_mask.devices.sharding import to_host
from ppo_mask.errors import RunError, first_line
from ppo_mask.jax_tools._trees import differences

Tree = TypeVar("Tree")

DESCRIPTION = "description.json"
ARRAYS = "arrays"
_FORMAT = 3
_SAVING = ".saving-"


@final
@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A complete checkpoint: its folder, and its description, which is parsed once.

    Attributes:
        path: the folder.
        about: the description: what :meth:`write` was given, the time, and ``"arrays"``, which has
            the shape, dtype and checksum of every array by name.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import jax.numpy as jnp
        >>> from ppo_mask.checkpoints import Checkpoint
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     saved = Checkpoint.write(Path(folder, "1"), {"weight": jnp.ones(2)}, {"by": "me"})
        ...     print(saved.about["by"], saved.restore({"weight": jnp.zeros(2)}))
        me {'weight': Array([1., 1.], dtype=float32)}
    """

    path: Path
    about: Mapping[str, Any] = field(repr=False)

    @classmethod
    def write(cls, path: Path, state: Any, about: Mapping[str, Any]) -> "Checkpoint":
        """Writes a checkpoint.

        If several processes share the state, all of them must call this method; process 0 writes.

        Args:
            path: the folder, which is new.
            state: any tree; only its arrays are saved.
            about: anything JSON can hold.

        Raises:
            RunError: the checkpoint cannot be written, or differs when read back; the new files
                have been deleted.
        """
        check_path(path)
        leaves = named_arrays(state)
        # Random keys become their key data. An array that is sharded over processes is gathered
        # whole on each process.
        arrays = {
            name: to_host(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
            for name, leaf in leaves.items()
        }
        described = {
            name: _describe(leaf) | {"crc32": _checksum(arrays[name])}
            for name, leaf in leaves.items()
        }
        written = cls(path, {**about, "format": _FORMAT, "time": time.time(), "arrays": described})
        on_process_0(lambda: written._write(arrays), f"save {path}")
        return written

    @classmethod
    def read(cls, path: Path) -> "Checkpoint":
        """Reads a checkpoint's description; see :meth:`write`.

        Raises:
            RunError: there is no complete checkpoint, or the description is damaged.
        """
        try:
            about = _About(json.loads((path / DESCRIPTION).read_bytes()))
            about.path = path
        except (FileNotFoundError, NotADirectoryError) as error:
            why = f": it has no {DESCRIPTION}" if path.is_dir() else ""
            raise RunError(f"there is no checkpoint {path}{why}") from error
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"checkpoint {path} is damaged: {first_line(error)}") from error
        if about.get("format") != _FORMAT:
            raise RunError(
                f"checkpoint {path} has format {about.get('format')}, this version of ppo_mask "
                f"reads format {_FORMAT}"
            )
        return cls(path, about)

    @property
    def step(self) -> int:
        """The number of the checkpoint in its run."""
        return int(self.path.name)

    def restore(self, like: Tree, prefix: str = "") -> Tree:
        """Restores a tree: arrays from the checkpoint, and everything else from ``like``.

        Args:
            like: a tree of the same structure, shapes and dtypes; the arrays in the tree may be
                ``jax.ShapeDtypeStruct``.
            prefix: precedes the names of the arrays of ``like`` in the checkpoint; for the network
                in a ``TrainState``, "model.".

        Raises:
            RunError: the checkpoint is damaged or does not fit ``like``.
        """
        described: dict[str, dict[str, Any]] = self.about["arrays"]
        wanted = {prefix + name: leaf for name, leaf in named_arrays(like).items()}
        _compare(self.path, described, wanted, whole=not prefix)
        arrays = self.arrays(list(wanted))
        leaves = [_from_numpy(arrays[name], described[name], leaf) for name, leaf in wanted.items()]
        dynamic, static = eqx.partition(like, _is_array)
        return eqx.combine(jax.tree.unflatten(jax.tree.structure(dynamic), leaves), static)

    def arrays(self, names: Sequence[str] | None = None) -> dict[str, npt.NDArray[Any]]:
        """Reads all or some of the arrays by name, and verifies their checksums.

        Random keys are returned as their key data.

        Raises:
            RunError: the checkpoint is damaged.
        """
        from ppo_mask.checkpoints import _orbax

        described: dict[str, dict[str, Any]] = self.about["arrays"]
        names = list(described) if names is None else names
        # Orbax has no arrays without elements.
        empty = {x: np.zeros(described[x]["shape"]) for x in names if 0 in described[x]["shape"]}
        written = [name for name in names if name not in empty]
        try:
            arrays: dict[str, npt.NDArray[Any]] = _orbax.read_arrays(self.path / ARRAYS, written)
        # Orbax and TensorStore raise errors of many classes for files that they cannot read.
        except Exception as error:
            reason = _orbax.in_short(error)
            raise RunError(f"checkpoint {self.path} is damaged: {reason}") from error
        for name in written:
            if _checksum(arrays[name]) != described[name]["crc32"]:
                raise RunError(f"checkpoint {self.path} is damaged: {name} is not what was saved")
        return arrays | {name: x.astype(described[name]["dtype"]) for name, x in empty.items()}

    def _write(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        from ppo_mask.checkpoints import _orbax  # Imported here, since it takes long.

        # Each try has a new name, because after a failure Orbax may still be writing to the old
        # folder.
        unread = self.path.with_name(f"{_SAVING}{secrets.token_hex(4)}")
        try:
            unread.mkdir(parents=True)
            # Orbax refuses arrays without elements; the description holds their shapes.
            _orbax.write(unread / ARRAYS, {n: x for n, x in arrays.items() if x.size})
            replace(self, path=unread).arrays()
            (unread / DESCRIPTION).write_text(json.dumps(self.about), encoding="utf-8")
            flush(unread)
            if _is_half_deleted(self.path):
                shutil.rmtree(self.path)
            unread.rename(self.path)
            flush_folder(self.path.parent)
        except Exception as error:
            shutil.rmtree(unread, ignore_errors=True)
            raise RunError(f"cannot save {self.path}: {_orbax.in_short(error)}") from error


class _About(dict[str, Any]):
    """What a ``description.json`` has; what it lacks is one line."""

    path: Path

    def __missing__(self, key: str) -> NoReturn:
        raise RunError(f"checkpoint {self.path} is damaged: its {DESCRIPTION} has no {key}")


def steps_in(folder: Path) -> list[int]:
    """Lists the steps of all complete checkpoints in a folder, in order."""
    found = (path.parent.name for path in folder.glob(f"*/{DESCRIPTION}"))
    return sorted(int(name) for name in found if name.isdecimal())


def delete_checkpoint(path: Path) -> None:
    """Deletes a checkpoint; from the beginning, it is none any more."""
    (path / DESCRIPTION).unlink()
    shutil.rmtree(path, ignore_errors=True)


def clean_checkpoints(folder: Path) -> None:
    """Deletes checkpoints that a killed process left partly written or partly deleted."""
    for path in folder.glob("*"):
        if path.name.startswith(_SAVING) or (path.name.isdecimal() and _is_half_deleted(path)):
            shutil.rmtree(path, ignore_errors=True)


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


def _is_half_deleted(path: Path) -> bool:
    return path.is_dir() and {each.name for each in path.iterdir()} <= {ARRAYS}

"""Checkpoints on disk: named arrays written by Orbax, and a JSON description.

A checkpoint of step ``n`` is the folder ``n``. It is written under another name, read again, and
renamed if it is what was to be saved. So a folder with a number for a name is a whole checkpoint,
whenever the process was killed. Only arrays and JSON are read: loading a checkpoint runs no code
from it.

The description lists every array's shape, dtype and checksum. Restoring compares it with what the
program expects before anything is read, so that a message can name the array that does not fit.
"""

import itertools
import math
import os
import shutil
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from ppo_mask.devices.processes import from_first, is_first
from ppo_mask.devices.sharding import to_host
from ppo_mask.errors import RunError, warn

Tree = TypeVar("Tree")

_FORMAT = 1
_SAVING = ".saving-"
_DISCARDED = ".discarded"
_REWOUND = ".rewound"

_failures: Counter[Path] = Counter()  # By checkpoint; all processes of a run count alike.


class CheckpointStore:
    """The checkpoints of one run, in one folder.

    Attributes:
        directory: the folder; it is made with the first checkpoint.
        keep: how many of the newest are kept, beside the one with the best score.
        shared: whether all processes of the run see the folder. If not, it is the first one's: that
            one writes what all have, and for the others there are no checkpoints.
    """

    directory: Path
    keep: int
    shared: bool

    def __init__(self, directory: Path, keep: int = 3, shared: bool = True) -> None:
        self.directory = directory.absolute()
        self.keep = keep
        self.shared = shared

    @property
    def rewound(self) -> Path:
        """What :meth:`discard_after` keeps until the next checkpoint is complete."""
        return self.directory / _REWOUND

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step is, or would be."""
        return self.directory / str(step)

    def steps(self) -> list[int]:
        """The steps of all complete checkpoints, in order."""
        if not self._is_here or not self.directory.is_dir():
            return []
        return sorted(int(p.name) for p in self.directory.iterdir() if p.name.isdecimal())

    def newest(self) -> int | None:
        """The step of the newest checkpoint, if there is one."""
        return max(self.steps(), default=None)

    def best(self) -> int | None:
        """The step of the checkpoint with the best score, if one has a score.

        Scores of evaluations come before others, which are not comparable with them. Of equal ones
        the newest is the best.
        """
        return max(ranks := self._ranks(), key=lambda step: (ranks[step], step), default=None)

    def would_be_best(self, score: float, evaluated: bool) -> bool:
        """Whether a checkpoint of such a score would be the best; see :meth:`save`."""
        rank = _rank(score, evaluated)
        return rank is not None and all(rank >= other for other in self._ranks().values())

    def what_is_kept(self) -> str:
        """The newest checkpoint, in words that may end an error message."""
        newest = self.newest()
        if not self._is_here:
            return "the first process says what the last good checkpoint is"
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
        """Writes a checkpoint, then deletes those that need not be kept.

        Where several processes share the state, all must save it; each writes what it has, or the
        first one all, if only that one has the folder.

        Args:
            step: its number; there must be none of this number yet.
            state: any tree; its arrays are written, all else is left out.
            description: anything JSON can hold.
            score: how good the state is; the one with the best is kept.
            evaluated: whether the score is that of an evaluation of this very state.

        Returns:
            The checkpoint's folder.

        Raises:
            RunError: it cannot be written; those that there are stay as they are.
        """
        scored = {"score": score, "evaluated": evaluated}
        about = {**description, **scored}
        write_checkpoint(self.path(step), state, about, self.rewound, self.shared)
        if is_first():
            try:
                self._prune()
            except OSError as error:
                warn(f"cannot delete older checkpoints of {self.directory}: {error.strerror}")
        return self.path(step)

    def discard_after(self, step: int, until_saved: bool = False) -> None:
        """Deletes all checkpoints of later steps.

        Args:
            step: the newest that stays.
            until_saved: keep them aside, in ``rewound``, until the next checkpoint is complete.
        """
        for later in reversed(self.steps()):
            if later > step and until_saved:
                self.path(later).rename(self.rewound / str(later))
            elif later > step:
                _discard(self.path(later))

    def clean(self) -> None:
        """Deletes what a killed process left half written or half deleted."""
        if self.directory.is_dir():
            for path in self.directory.iterdir():
                tmp = path.name.startswith(_SAVING) or ".orbax-checkpoint-tmp" in path.name
                if tmp or path.name.endswith(_DISCARDED):
                    shutil.rmtree(path, ignore_errors=True)

    @property
    def _is_here(self) -> bool:
        return self.shared or is_first()

    def _ranks(self) -> dict[int, tuple[bool, float]]:
        """By step, for those that have a score."""
        ranks: dict[int, tuple[bool, float]] = {}
        for step in self.steps():
            with suppress(RunError):  # One that is damaged is never the best.
                about = read_description(self.path(step))
                rank = _rank(about.get("score"), about.get("evaluated", False))
                ranks |= {} if rank is None else {step: rank}
        return ranks

    def _prune(self) -> None:
        best = self.best()
        for step in self.steps()[: -self.keep]:
            if step != best:
                _discard(self.path(step))


def write_checkpoint(
    path: Path,
    state: Any,
    description: Mapping[str, Any],
    replaced: Path | None = None,
    shared: bool = True,
) -> None:
    """Writes one checkpoint; see :meth:`CheckpointStore.save`.

    Args:
        path: the folder, which must not exist yet.
        state: any tree; its arrays are written.
        description: anything JSON can hold.
        replaced: a folder that is deleted, if there is one, when all is known to be well.
        shared: whether all processes see the folder; if not, the first writes all of it.

    Raises:
        RunError: it cannot be written, or is not what was to be saved; there is nothing then.
    """
    leaves = named_arrays(state)
    # Keys as the numbers they are made of, which is what Orbax can write.
    arrays = {
        name: jax.random.key_data(leaf) if _is_key(leaf) else leaf for name, leaf in leaves.items()
    }
    contents = {name: to_host(x) for name, x in arrays.items()}
    described = {
        name: _describe(leaf) | {"crc32": _checksum(contents[name])}
        for name, leaf in leaves.items()
    }
    # Orbax refuses arrays without elements; their shape is in the description. What one process has
    # whole has been fetched already; of what several share, each writes its part, if it can.
    written = {
        name: _writable(contents[name])
        if x.is_fully_addressable or not shared or _is_small(x.dtype)
        else x
        for name, x in arrays.items()
        if x.size
    }
    from ppo_mask.checkpoints import _orbax  # Takes long to import; see there.

    # A name of any length and characters may be asked for; this one Orbax can write.
    # Each try has its own: Orbax may still be at work in the folder of one that has failed.
    name = f"{_SAVING}{zlib.crc32(os.fsencode(path.name)):x}-{_failures[path]}"
    unread = path.with_name(name)
    failure = ""
    try:
        if shared or is_first():
            path.parent.mkdir(parents=True, exist_ok=True)
            about = {**description, "format": _FORMAT, "arrays": described}
            _orbax.write(unread, written, about, not shared)
        if is_first():
            read_arrays(unread)
            gone = None if replaced is None or not replaced.exists() else _put_aside(replaced)
            unread.rename(path)
            if gone is not None:
                shutil.rmtree(gone, ignore_errors=True)
    except Exception as error:
        failure = _orbax.in_short(error)
    # The first process has read all of it, so its word is good for the others.
    if from_first(not failure):
        return
    _failures[path] += 1
    if is_first():
        with suppress(OSError):
            for each in path.parent.glob(f"{unread.name}*"):
                shutil.rmtree(each, ignore_errors=True)
    raise RunError(f"cannot save {path}: {failure or 'the first process says why'}")


def read_description(path: Path) -> dict[str, Any]:
    """What a checkpoint says about itself; see :meth:`CheckpointStore.save`.

    Raises:
        RunError: there is no checkpoint, or it is damaged.
    """
    if not path.is_dir():
        raise RunError(f"there is no checkpoint {path}")
    from ppo_mask.checkpoints import _orbax

    description = _orbax.read_description(path)
    if description.get("format") != _FORMAT:
        raise RunError(
            f"checkpoint {path} has format {description.get('format')}, this version of ppo_mask "
            f"reads format {_FORMAT}"
        )
    return description


def restore(path: Path, like: Tree, prefix: str = "") -> Tree:
    """A tree with the arrays of a checkpoint, and all else as in ``like``.

    Args:
        path: of the checkpoint.
        like: has the structure, shapes and dtypes; its arrays may be ``jax.ShapeDtypeStruct``.
        prefix: of the checkpoint's names, to restore a part of what was saved.

    Raises:
        RunError: there is no checkpoint, it is damaged, or it does not fit ``like``.
    """
    described: dict[str, dict[str, Any]] = read_description(path)["arrays"]
    wanted = {prefix + name: leaf for name, leaf in named_arrays(like).items()}
    _compare(path, described, wanted, whole=not prefix)
    arrays = read_arrays(path, list(wanted))
    leaves = [_from_numpy(arrays[name], described[name], leaf) for name, leaf in wanted.items()]
    dynamic, static = eqx.partition(like, _is_array)
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(dynamic), leaves), static)


def read_arrays(path: Path, names: Sequence[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a checkpoint by name, all or some, compared with their checksums.

    Random keys come as the numbers they are made of.

    Raises:
        RunError: there is no checkpoint, or it is damaged.
    """
    described: dict[str, dict[str, Any]] = read_description(path)["arrays"]
    names = list(described) if names is None else names
    written = [name for name in names if 0 not in described[name]["shape"]]
    from ppo_mask.checkpoints import _orbax

    arrays: dict[str, npt.NDArray[Any]] = _orbax.read_arrays(path, written)
    for name in written:
        dtype = described[name]["dtype"]
        if not dtype.startswith("key<") and _is_small(np.dtype(dtype)):
            arrays[name] = arrays[name].view(dtype)
        if _checksum(arrays[name]) != described[name]["crc32"]:
            raise RunError(f"checkpoint {path} is damaged: {name} is not what was saved")
    empty = {
        name: np.zeros(described[name]["shape"], described[name]["dtype"])
        for name in names
        if name not in arrays
    }
    return {**arrays, **empty}


def named_arrays(tree: Any) -> dict[str, Any]:
    """The array leaves of a tree by their place in it, such as ``model.actor.0.weight``."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, _is_array))
    named: dict[str, Any] = {}
    for path, leaf in leaves:
        # A tree that is one array has no place to be called by.
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "array"
        # Keys may have dots, as in {"a": {"b": x}, "a.b": y}; the second is "a.b#2" then.
        numbered = (f"{name}#{number}" for number in itertools.count(2))
        named[next(x for x in itertools.chain([name], numbered) if x not in named)] = leaf
    return named


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _is_small(dtype: np.dtype[Any]) -> bool:
    """Whether it is of a byte and not NumPy's, such as uint4: Orbax does not know all of these."""
    return dtype.itemsize == 1 and dtype.isbuiltin != 1


def _writable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.view(np.uint8) if _is_small(array.dtype) else array


def _describe(leaf: Any) -> dict[str, Any]:
    described = {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
    if _is_key(leaf) and eqx.is_array(leaf):
        described["key_implementation"] = str(jax.random.key_impl(leaf))
    return described


def _from_numpy(array: npt.NDArray[Any], described: dict[str, Any], like: Any) -> Any:
    # A copy that JAX owns, since training donates its buffers.
    leaf = jnp.array(array)
    if _is_key(like):
        leaf = jax.random.wrap_key_data(leaf, impl=described["key_implementation"])
    # An array that is bound to a device only now would make every program compile once more.
    bound = eqx.is_array(like) and like.committed
    return jax.device_put(leaf, like.sharding) if bound else leaf


def _checksum(array: npt.NDArray[Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def _compare(
    path: Path, described: Mapping[str, Any], wanted: Mapping[str, Any], whole: bool
) -> None:
    for name in [*wanted, *described] if whole else wanted:
        theirs = _text(described[name]) if name in described else "nothing"
        ours = _text(_describe(wanted[name])) if name in wanted else "nothing"
        if ours != theirs:
            raise RunError(f"checkpoint {path} has {theirs} for {name}, this run asks for {ours}")


def _text(described: Mapping[str, Any]) -> str:
    return f"{described['dtype']}{described['shape']}"


def _rank(score: float | None, evaluated: bool) -> tuple[bool, float] | None:
    return None if score is None or math.isnan(score) else (evaluated, score)


def _discard(path: Path) -> None:
    shutil.rmtree(_put_aside(path), ignore_errors=True)


def _put_aside(path: Path) -> Path:
    # A name that no longer counts as a checkpoint: deleting takes time, renaming does not.
    return path.rename(path.with_name(path.name + _DISCARDED))

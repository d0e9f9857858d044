"""Steps environments one after another, in this process or in a worker.

A worker is a process that runs this file. This file imports neither JAX nor other modules of this
library, so that a worker starts fast and uses little memory. Functions that run in each step have
no type checks, because in many environments a step takes less time than the checks would.
"""

import contextlib
import mmap
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, no_type_check

import numpy as np

_RETURNED = {
    "reset": ("observation", "info"),
    "step": ("observation", "reward", "terminated", "truncated", "info"),
}
_FLAGS = "terminated and truncated must be one boolean each"

GIVEN = "given_mask"
"""The method that a maker adds to an environment for a function given as ``mask``."""

IDLE = -1
"""In place of an action: the environment takes no step, and its arrays stay as they are."""

# Arrays begin at cache lines, since several workers write to the same memory.
_ALIGNED = 64


class UnfitError(Exception):
    """An environment broke Gymnasium's rules; callers prepend the environment's name."""


def lay_out(layout: Any) -> Any:
    """Computes each array's name, dtype, shape and offset in memory, and the total size in bytes.

    Args:
        layout: a dict with ``num_envs``, ``action_shape``, ``mask_length``, ``infos``, ``leaves``
            (the path, dtype, shape and span of each leaf; see ``Leaf``) and ``mask``, the mask's
            source: "method" or "info" and a name, "observation" and a path, or (None, None).
    """
    n = layout["num_envs"]
    fields = [
        ("action", "int64", (n, *layout["action_shape"])),
        ("seed", "int64", (n,)),
        ("cut", "bool", (n,)),
        ("numbers", "float32", (n, 1 + len(layout["infos"]))),  # The reward, and infos.
        ("ends", "bool", (n, 2)),  # Terminated, truncated.
        ("mask", "bool", (n, layout["mask_length"])),
        ("final_mask", "bool", (n, layout["mask_length"])),
    ]
    for i, (_, dtype, shape, _) in enumerate(layout["leaves"]):
        fields += [(f"{name}{i}", dtype, (n, *shape)) for name in ("next", "final")]
    places: list[Any] = []
    size = 0
    for name, dtype, shape in fields:
        places.append((name, dtype, shape, size))
        size += int(np.prod(shape)) * np.dtype(dtype).itemsize
        size += -size % _ALIGNED
    return places, size


def make_arrays(layout: Any, buffer: Any = None) -> Any:
    """Makes the arrays, by name, for the inputs and the results of all environments' steps."""
    places, size = lay_out(layout)
    buffer = bytearray(size) if buffer is None else buffer
    return {name: np.ndarray(shape, dtype, buffer, offset) for name, dtype, shape, offset in places}


def describe_error(error: Any) -> Any:
    """Describes an error, and where it was raised, in one line without the environment's name."""
    text = " ".join(str(error).split())
    if isinstance(error, UnfitError):
        return f": {text}"
    frames = traceback.extract_tb(error.__traceback__)
    places = [frame for frame in frames if not _is_between(frame.filename)]
    # An error that a library raises is seldom the library's fault.
    places = [x for x in places if "site-packages" not in x.filename] or places
    at = f" at {places[-1].filename}:{places[-1].lineno} ({places[-1].name})" if places else ""
    return f" raised {type(error).__name__}{': ' if text else ''}{text}{at}"


def _is_between(filename: Any) -> bool:
    """Whether a file is an adapter's, Gymnasium's, a type checker's or Python's, not the user's."""
    path = filename.replace(os.sep, "/")
    between = "/ppo_mask/adapters/from_gymnasium/", "/ppo_mask/_typecheck.py", "<frozen "
    libraries = "gymnasium", "jaxtyping", "beartype"
    return any(x in path for x in (*between, *(f"/site-packages/{x}/" for x in libraries)))


@no_type_check
def check_returned(result: Any, method: Any) -> Any:
    """Checks and returns the values from ``reset`` or ``step``."""
    names = _RETURNED[method]
    if not isinstance(result, (tuple, list)) or len(result) != len(names):
        several = isinstance(result, (tuple, list))
        got = f"{len(result)} values" if several else type(result).__name__
        old = ", as in the old Gym's API" if (method, got) == ("step", "4 values") else ""
        raise UnfitError(
            f"{method} must return {len(names)} values ({', '.join(names)}); got {got}{old}"
        )
    if not isinstance(result[-1], dict):
        raise UnfitError(f"the info of {method} must be a dict; got {type(result[-1]).__name__}")
    return result


@no_type_check
def store_numbers(array: Any, where: Any, value: Any, must: Any) -> None:
    """Copies a reward, an info or flags to ``array[where]``; errors begin with ``must``."""
    try:
        # NumPy would turn None into NaN, which would look like a division by zero.
        if array.dtype.kind == "f" and np.asarray(value).dtype.kind in "OUS":
            raise TypeError
        array[where] = value
    except (TypeError, ValueError):
        raise UnfitError(f"{must}; got {value!r}") from None


@no_type_check
def _check_kept(kept: Any, value: Any, path: Any, span: Any) -> None:
    """Checks that numbers are in ``span`` and the dtype's range; NumPy would wrap them silently."""
    if span is not None:
        lowest, highest = span
        wrong = (value < lowest) | (value > highest)
        if wrong.any():
            first, *bounds = (np.broadcast_to(x, wrong.shape)[wrong][0] for x in (value, *span))
            raise UnfitError(
                f"observation{_where(path)} holds {first}; its space has {bounds[0]} to {bounds[1]}"
            )
        return
    if kept.dtype == value.dtype or kept.dtype.kind not in "iu" or value.dtype.kind not in "iu":
        return
    if not np.array_equal(kept, value):
        range_, first = np.iinfo(kept.dtype), value[kept != value][0]
        raise UnfitError(
            f"observation{_where(path)} holds {first}, but it is kept as {kept.dtype}, which holds "
            f"{range_.min} to {range_.max}: give it a space of a wider dtype, such as float32"
        )


@no_type_check
def check_mask(mask: Any, layout: Any) -> Any:
    """Checks a mask, or a list of the allowed actions, and converts it to an array of booleans."""
    is_row = isinstance(mask, np.ndarray) and mask.dtype == np.bool_
    if not is_row or mask.shape != (layout["mask_length"],):
        mask = _read_mask(mask, layout)
    if not mask.any():
        what = name_source(layout["mask"])
        raise UnfitError(f"{what} allows no action, though the episode has not ended")
    if layout["has_parts"]:
        allows = np.logical_or.reduceat(mask, layout["mask_starts"])
        if not allows.all():
            raise UnfitError(
                f"{name_source(layout['mask'])} allows no action in part {allows.argmin()} "
                "(counted from 0), though the episode has not ended"
            )
    return mask


@no_type_check
def _read_mask(mask: Any, layout: Any) -> Any:
    what, length = name_source(layout["mask"]), layout["mask_length"]
    has_parts = layout["has_parts"]
    wanted = f"one row of {length} booleans"
    wanted += ", part after part" if has_parts else ", or the allowed actions, each once"
    if has_parts:
        rows = _rows_in(mask)
        if [row.size for row in rows] == np.diff([*layout["mask_starts"], length]).tolist():
            mask = np.concatenate(rows)
    try:
        array = np.asarray(list(mask) if isinstance(mask, (set, frozenset, dict)) else mask)
    except ValueError:
        raise UnfitError(f"{what} is no array; it must be {wanted}") from None
    if not has_parts:
        array = _read_list(array, layout)
    if array.shape != (length,):
        raise UnfitError(f"{what} has shape {array.shape}; it must be {wanted}")
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        raise UnfitError(f"{what} must hold booleans, or 0 and 1; got {array[wrong][0]}")
    return array.astype(bool)


@no_type_check
def _rows_in(mask: Any) -> Any:
    """Lists the parts' masks, which Gymnasium has in a tuple, nested as the space is."""
    is_nested = isinstance(mask, (tuple, list)) and not all(map(np.isscalar, mask))
    if is_nested or np.ndim(mask) > 1:
        return [row for part in mask for row in _rows_in(part)]
    return [np.atleast_1d(mask)]


@no_type_check
def _read_list(array: Any, layout: Any) -> Any:
    """Converts a list of allowed actions to a mask; returns any other array unchanged.

    With two actions, ``[0, 1]`` may be either: only an entry ``valid_actions`` makes it a list.
    """
    is_list = array.ndim == 1 and (array.dtype.kind in "iu" or not array.size)
    if not is_list:
        return array
    is_row = len(array) == layout["mask_length"] and ((array == 0) | (array == 1)).all()
    if is_row and layout["mask"] != ("info", "valid_actions"):
        return array
    allowed = np.isin(np.arange(layout["mask_length"]), array - layout["start"])
    return allowed if np.count_nonzero(allowed) == len(array) else array


def name_source(source: Any) -> Any:
    """Names a mask's source (see ``lay_out``), for messages."""
    kind, name = source
    if kind == "method":
        return "mask(environment)" if name == GIVEN else f"{name}()"
    return (kind + _where([name] if kind == "info" else name)).replace("'", '"')


@no_type_check
def store(array: Any, rows: Any, value: Any, path: Any, span: Any) -> None:
    """Copies a part of one or several observations to ``array[rows]``, if it fits its space."""
    value = np.asarray(value)
    # Signed and unsigned whole numbers fit each other; `_check_kept` checks their range.
    are_whole = value.dtype.kind in "iub" and array.dtype.kind in "iu"
    fits = are_whole or np.can_cast(value.dtype, array.dtype, "same_kind")
    shape = array[rows].shape
    if value.shape != shape or not fits:
        # A space has no axis of environments.
        skip = int(isinstance(rows, (slice, np.ndarray)) and value.shape[:1] == shape[:1])
        raise UnfitError(
            f"observation{_where(path)} is {value.dtype}{list(value.shape[skip:])}; its space says "
            f"{array.dtype}{list(shape[skip:])}"
        )
    array[rows] = value
    _check_kept(array[rows], value, path, span)


def part_of(observation: Any, path: Any) -> Any:
    """Returns the part of an observation at a path."""
    for key in path:
        observation = observation[key]
    return observation


def _where(path: Any) -> Any:
    return "".join(f"[{key!r}]" for key in path)


@no_type_check
def read_entry(info: Any, observation: Any, source: Any) -> Any:
    """Reads the mask, or a vector's masks, from an info or an observation."""
    kind, name = source
    if kind == "observation":
        return part_of(observation, name)
    if (value := info.get(name)) is None:
        raise UnfitError(f'info has no "{name}" here, though it had one before')
    return value


@no_type_check
def close_silently(env: Any) -> None:
    """Closes an environment or a vector; ``_makers.close`` has shown any failure already."""
    with contextlib.suppress(Exception, SystemExit):
        env.close()


@no_type_check
class Stepper:
    """Steps the environments ``first`` to ``last`` - 1 of a batch."""

    def __init__(self, make: Any, layout: Any, arrays: Any, first: Any, last: Any) -> None:
        self._layout, self.arrays = layout, arrays
        self._envs = {row: make() for row in range(first, last)}
        if len({id(env.unwrapped) for env in self._envs.values()}) < len(self._envs):
            raise UnfitError("the function that makes it returned the same environment twice")
        kind, name = layout["mask"]
        with_masks = self._envs.items() if kind == "method" else ()
        self._masks = {row: env.get_wrapper_attr(name) for row, env in with_masks}
        leaves = [(path, span) for path, _, _, span in layout["leaves"]]
        self._next = [(*leaf, arrays[f"next{i}"]) for i, leaf in enumerate(leaves)]
        self._final = [(*leaf, arrays[f"final{i}"]) for i, leaf in enumerate(leaves)]

    def reset(self) -> None:
        """Starts an episode in each environment, from the environment's seed."""
        self._run(True)

    def step(self) -> None:
        """Steps each environment; begins a new episode where one ended or is truncated."""
        self._run(False)

    def close(self) -> None:
        """Closes the environments, silently."""
        for env in self._envs.values():
            close_silently(env)

    def _run(self, begins: Any) -> None:
        # One long function, since Python calls take time, and the steps of many games are short.
        arrays, layout = self.arrays, self._layout
        numbers, ends, masks, cuts = (arrays[x] for x in ("numbers", "ends", "mask", "cut"))
        start, names, (mask_is, _) = layout["start"], layout["infos"], layout["mask"]
        actions = arrays["action"] + start
        idle = (arrays["action"] == IDLE).reshape(len(actions), -1).any(axis=1)
        for row, env in self._envs.items():
            if idle[row] and not begins:
                continue
            if begins:
                seed = int(arrays["seed"][row])
                observation, info = check_returned(env.reset(seed=seed), "reset")
                reward, terminated, truncated = 0.0, False, False
            else:
                result = check_returned(env.step(actions[row]), "step")
                observation, reward, terminated, truncated, info = result
            store_numbers(numbers, (row, 0), reward, "the reward must be one number")
            store_numbers(ends, row, (terminated, truncated), _FLAGS)
            for i, name in enumerate(names, 1):
                value = info.get(name, 0)
                store_numbers(numbers, (row, i), value, f"info[{name!r}] must be one number")
            if not begins and (terminated or truncated or cuts[row]):
                for path, span, array in self._final:
                    store(array, row, part_of(observation, path), path, span)
                arrays["final_mask"][row] = terminated or self._last_mask(row, info, observation)
                observation, info = check_returned(env.reset(), "reset")
            for path, span, array in self._next:
                value = np.asarray(part_of(observation, path))
                if span is None and value.dtype == array.dtype and value.shape == array.shape[1:]:
                    array[row] = value
                else:
                    store(array, row, value, path, span)
            if mask_is is None:
                masks[row] = True
            else:
                masks[row] = check_mask(self._read_mask(row, info, observation), layout)

    def _read_mask(self, row: Any, info: Any, observation: Any) -> Any:
        if self._masks:
            return self._masks[row]()
        return read_entry(info, observation, self._layout["mask"])

    def _last_mask(self, row: Any, info: Any, observation: Any) -> Any:
        """The mask where an episode was cut off; all True if the environment has none there."""
        if self._layout["mask"][0] is None:
            return True
        try:
            return check_mask(self._read_mask(row, info, observation), self._layout)
        except UnfitError:
            return True


def work(control: int, memory: int, parent: int) -> None:
    """Executes commands until ``control`` is closed, or the process ``parent`` has ended."""
    # Ignores signals, since the run may need more steps to stop cleanly. The worker stops when the
    # connection closes.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_after, args=(parent,), daemon=True).start()
    connection = Connection(control)
    stepper: Any = None
    try:
        while True:
            command = connection.recv_bytes()
            reply = b""
            try:
                if command == b"reset":
                    stepper.reset()
                elif command == b"step":
                    stepper.step()
                else:
                    sys.path[:], make, layout, first, last = pickle.loads(command)
                    arrays = make_arrays(layout, mmap.mmap(memory, 0))
                    stepper = Stepper(pickle.loads(make), layout, arrays, first, last)
            except BaseException as error:
                reply = describe_error(error).encode()
            connection.send_bytes(reply)
    except (EOFError, OSError):
        pass
    finally:
        if stepper is not None:
            stepper.close()


def _end_after(parent: int) -> None:
    """Ends this worker, even if its environment hangs, soon after its parent has ended."""
    while os.getppid() == parent:
        time.sleep(1)
    time.sleep(2)  # For environments that can be closed.
    os._exit(1)


if __name__ == "__main__":
    work(*map(int, sys.argv[1:]))

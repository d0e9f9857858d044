"""Steps environments one after another, in this process or in a worker.

A worker is a process that runs this file. This file imports neither JAX nor other modules of this
library, so that a worker starts fast and uses little memory.
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
from typing import Any, NamedTuple

import numpy as np

_RETURNED = {
    "reset": ("observation", "info"),
    "step": ("observation", "reward", "terminated", "truncated", "info"),
}
_FLAGS = "terminated and truncated must be one boolean each"

# An error that a library raises, or this one, is seldom the library's fault.
_OF_LIBRARIES = "site-packages", "/src/ppo_mask/", "<frozen "

GIVEN = "given_mask"
"""The method that a maker adds to an environment for a function given as ``mask``."""

IDLE = -1
"""In place of an action: the environment takes no step, and its arrays stay as they are."""

SESSION, SLOT, SERIAL, TERMINATED, TRUNCATED, BEGUN = range(6)
"""Columns of ``row``: the numbers of ``HostState``; and how the last step ended, where BEGUN means
that a new episode began instead of a step."""


class UnfitError(Exception):
    """An environment broke Gymnasium's rules; callers prepend the environment's name."""


class Layout(NamedTuple):
    """An environment's actions, observations and masks, in plain data that workers can read.

    Attributes:
        name: the environment's name, for messages.
        num_actions: as in ``AbstractEnv``.
        mask_length: the length of a mask.
        mask_starts: where each part of an action begins in the mask.
        action_shape: the shape of an action of the environment itself; () if it is Discrete.
        start: the lowest action of the environment itself.
        leaves: the path, dtype, shape and span of each array of an observation. The span has the
            lowest and the highest value of a Discrete or MultiDiscrete space; otherwise None.
        mask: where the mask is: "method", "info" or "observation", and a name; or (None, "").
        infos: the names of the infos to keep.
        render_modes: the modes that the environment can draw in.
        render_mode: the mode to draw in, "" for the mode that the environment was made with, or
            None to draw nothing.
    """

    name: str
    num_actions: Any
    mask_length: int
    mask_starts: tuple[int, ...]
    action_shape: Any
    start: Any
    leaves: list[tuple[Any, str, tuple[int, ...], Any]]
    mask: tuple[str | None, str]
    infos: tuple[str, ...]
    render_modes: tuple[str, ...]
    render_mode: str | None = None


def record_of(layout: Layout) -> np.dtype[Any]:
    """Returns the type of what an environment's step takes and gives: a record of arrays."""
    fields: list[Any] = [
        ("action", np.int64, layout.action_shape),
        ("seed", np.int64),
        ("cut", np.bool_),
        ("row", np.int32, (6,)),
        ("numbers", np.float32, (1 + len(layout.infos),)),  # The reward, and infos.
        ("mask", np.bool_, (layout.mask_length,)),
        ("final_mask", np.bool_, (layout.mask_length,)),
    ]
    for i, (_, dtype, shape, _) in enumerate(layout.leaves):
        fields += [(f"next{i}", dtype, shape), (f"final{i}", dtype, shape)]
    return np.dtype(fields, align=True)


def describe_error(error: BaseException) -> str:
    """Describes an error, and where it was raised, in one line without the environment's name."""
    text = " ".join(str(error).split())
    if isinstance(error, UnfitError):
        return f": {text}"
    frames = traceback.extract_tb(error.__traceback__)
    places = [x for x in frames if not any(part in x.filename for part in _OF_LIBRARIES)] or frames
    at = f" at {places[-1].filename}:{places[-1].lineno} ({places[-1].name})" if places else ""
    return f" raised {type(error).__name__}{': ' if text else ''}{text}{at}"


def check_returned(result: Any, method: str) -> Any:
    """Checks and returns the values from ``reset`` or ``step``."""
    names = _RETURNED[method]
    is_several = isinstance(result, (tuple, list))
    if not is_several or len(result) != len(names):
        got = f"{len(result)} values" if is_several else type(result).__name__
        raise UnfitError(
            f"{method} must return {len(names)} values ({', '.join(names)}); got {got}"
        )
    if not isinstance(result[-1], dict):
        raise UnfitError(f"the info of {method} must be a dict; got {type(result[-1]).__name__}")
    return result


def store_numbers(array: Any, where: Any, value: Any, must: str) -> None:
    """Copies a reward, an info or flags to ``array[where]``; errors begin with ``must``."""
    try:
        # NumPy would turn None into NaN, which would look like a division by zero.
        if array.dtype.kind == "f" and np.asarray(value).dtype.kind in "OUS":
            raise TypeError
        array[where] = value
    except (TypeError, ValueError):
        raise UnfitError(f"{must}; got {value!r}") from None


def store(array: Any, row: Any, value: Any, path: Any, span: Any) -> None:
    """Copies a part of an observation to ``array[row]``, if it fits its space."""
    value = np.asarray(value)
    # Signed and unsigned whole numbers fit each other; their range is checked instead.
    are_whole = value.dtype.kind in "iub" and array.dtype.kind in "iu"
    fits = are_whole or np.can_cast(value.dtype, array.dtype, "same_kind")
    shape, where = array[row].shape, "".join(f"[{key!r}]" for key in path)
    if value.shape != shape or not fits:
        raise UnfitError(
            f"observation{where} is {value.dtype}{list(value.shape)}; its space says "
            f"{array.dtype}{list(shape)}"
        )
    if are_whole:  # NumPy would wrap a number out of its range silently.
        limits = np.iinfo(array.dtype)
        span = (limits.min, limits.max) if span is None else span
        wrong = (value < span[0]) | (value > span[1])
        if wrong.any():
            first, *bounds = (np.broadcast_to(x, wrong.shape)[wrong][0] for x in (value, *span))
            raise UnfitError(
                f"observation{where} holds {first}; its space, kept as {array.dtype}, has "
                f"{bounds[0]} to {bounds[1]}"
            )
    array[row] = value


def part_of(observation: Any, path: Any) -> Any:
    """Returns the part of an observation at a path."""
    for key in path:
        observation = observation[key]
    return observation


def find_attribute(env: Any, names: Any) -> Any:
    """Returns the first of ``names`` that ``env`` or what it wraps has, and its value; or None."""
    for name in names:
        with contextlib.suppress(AttributeError):
            return name, env.get_wrapper_attr(name)
    return None


def name_source(source: Any) -> str:
    """Names a mask's source (see ``Layout``), for messages."""
    kind, name = source
    if kind == "method":
        return "mask(environment)" if name == GIVEN else f"{name}()"
    return f'{kind}["{name}"]'


def check_mask(mask: Any, layout: Layout) -> Any:
    """Checks a mask, or a list of the allowed actions, and converts it to an array of booleans."""
    is_row = isinstance(mask, np.ndarray) and mask.dtype == np.bool_
    if not is_row or mask.shape != (layout.mask_length,):
        mask = _read_mask(mask, layout)
    allows = np.logical_or.reduceat(mask, layout.mask_starts)
    if not allows.all():
        part = f" in part {allows.argmin()} (counted from 0)" if layout.action_shape else ""
        what = name_source(layout.mask)
        raise UnfitError(f"{what} allows no action{part}, though the episode has not ended")
    return mask


def _read_mask(mask: Any, layout: Layout) -> Any:
    what, length, has_parts = name_source(layout.mask), layout.mask_length, layout.action_shape
    wanted = f"one row of {length} booleans"
    wanted += ", part after part" if has_parts else ", or the allowed actions, each once"
    try:
        if has_parts and isinstance(mask, tuple):  # Gymnasium's form: a row for each part.
            mask = np.hstack(mask)
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


def _read_list(array: Any, layout: Layout) -> Any:
    """Converts a list of allowed actions to a mask; returns any other array unchanged.

    With two actions, ``[0, 1]`` may be either: only an entry ``valid_actions`` makes it a list.
    """
    is_list = array.ndim == 1 and (array.dtype.kind in "iu" or not array.size)
    is_row = len(array) == layout.mask_length and np.isin(array, (0, 1)).all() if is_list else True
    if not is_list or (is_row and layout.mask != ("info", "valid_actions")):
        return array
    allowed = np.isin(np.arange(layout.mask_length), array - layout.start)
    return allowed if np.count_nonzero(allowed) == len(array) else array


def close_silently(env: Any) -> None:
    """Closes an environment, which may fail where it is no longer needed."""
    with contextlib.suppress(Exception, SystemExit):
        env.close()


def _made(make: Any, render_mode: str | None) -> Any:
    """Makes an environment, with a render mode unless it takes none."""
    if render_mode:
        with contextlib.suppress(TypeError):
            return make(render_mode=render_mode)
    return make()


class Stepper:
    """Steps the environments ``first`` to ``last`` - 1 of a batch.

    Attributes:
        arrays: a record of the layout (see ``record_of``) for each environment of the batch.
    """

    def __init__(self, make: Any, layout: Layout, arrays: Any, first: int, last: int) -> None:
        self._layout, self.arrays = layout, arrays
        self._envs = {row: _made(make, layout.render_mode) for row in range(first, last)}
        if len({id(env.unwrapped) for env in self._envs.values()}) < len(self._envs):
            raise UnfitError("the function that makes it returned the same environment twice")
        kind, name = layout.mask
        with_masks = self._envs.items() if kind == "method" else ()
        self._masks = {row: find_attribute(env, [name])[1] for row, env in with_masks}
        for i in "mask", "final_mask":
            arrays[i][first:last] = True
        leaves = [(path, span) for path, _, _, span in layout.leaves]
        self._next = [(*leaf, arrays[f"next{i}"]) for i, leaf in enumerate(leaves)]
        self._final = [(*leaf, arrays[f"final{i}"]) for i, leaf in enumerate(leaves)]
        self._last_drawn: dict[int, Any] = {}

    def reset(self) -> None:
        """Starts an episode in each environment, from the environment's seed."""
        self._run(True)

    def step(self) -> None:
        """Steps each environment; begins a new episode where one ended or is truncated."""
        self._run(False)

    def draw(self, row: int, ended: bool) -> Any:
        """Draws an environment, or what it showed when its last episode ended."""
        env = self._envs[row]
        if ended:
            return self._last_drawn.get(row)
        return None if env.render_mode is None else env.render()

    def close(self) -> None:
        """Closes the environments, silently."""
        for env in self._envs.values():
            close_silently(env)

    def _run(self, begins: bool) -> None:
        # One long function, since Python calls take time, and the steps of many games are short.
        arrays, layout = self.arrays, self._layout
        numbers, masks, cuts = (arrays[name] for name in ("numbers", "mask", "cut"))
        ends = arrays["row"][:, TERMINATED : TRUNCATED + 1]
        has_masks = layout.mask[0] is not None
        actions = arrays["action"] + layout.start
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
            for i, name in enumerate(layout.infos, 1):
                value = info.get(name, 0)
                store_numbers(numbers, (row, i), value, f"info[{name!r}] must be one number")
            if not begins and (terminated or truncated or cuts[row]):
                for path, span, array in self._final:
                    store(array, row, part_of(observation, path), path, span)
                if has_masks:
                    last = terminated or self._last_mask(row, info, observation)
                    arrays["final_mask"][row] = last
                if layout.render_mode is not None:
                    self._last_drawn[row] = self.draw(row, False)
                observation, info = check_returned(env.reset(), "reset")
            for path, span, array in self._next:
                value = np.asarray(part_of(observation, path))
                if span is None and value.dtype == array.dtype and value.shape == array.shape[1:]:
                    array[row] = value
                else:
                    store(array, row, value, path, span)
            if has_masks:
                masks[row] = self._mask(row, info, observation)

    def _mask(self, row: int, info: Any, observation: Any) -> Any:
        layout = self._layout
        kind, name = layout.mask
        if kind == "info" and info.get(name) is None:
            raise UnfitError(f'info has no "{name}" here, though it had one before')
        given = info if kind == "info" else observation
        return check_mask(self._masks[row]() if self._masks else given[name], layout)

    def _last_mask(self, row: int, info: Any, observation: Any) -> Any:
        """The mask where an episode was cut off; all True if the environment has none there."""
        try:
            return self._mask(row, info, observation)
        except UnfitError:
            return True


def work(control: int, memory: int, parent: int) -> None:
    """Executes commands until ``control`` is closed, or the process ``parent`` has ended.

    The first command says what to step; each other is the name of a method of ``Stepper``.
    """
    # Ignores signals, since the run may need more steps to stop cleanly. The worker stops when the
    # connection closes.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_after, args=(parent,), daemon=True).start()
    connection = Connection(control)
    stepper: Any = None
    try:
        while True:
            command, reply = connection.recv_bytes(), b""
            try:
                if stepper is None:
                    sys.path[:], make, plain, num_envs, first, last = pickle.loads(command)
                    layout = Layout(*plain)
                    arrays = np.ndarray(num_envs, record_of(layout), mmap.mmap(memory, 0))
                    stepper = Stepper(pickle.loads(make), layout, arrays, first, last)
                else:
                    getattr(stepper, command.decode())()
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

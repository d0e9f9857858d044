"""Steps a vector environment of Gymnasium with any autoreset mode."""

import contextlib
import signal
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, no_type_check

import numpy as np

from ppo_mask.adapters._gymnasium import gymnasium
from ppo_mask.adapters.from_gymnasium._makers import METHODS, find_masks
from ppo_mask.adapters.from_gymnasium._stepper import (
    UnfitError,
    check_mask,
    check_returned,
    close_silently,
    part_of,
    read_entry,
    store,
    store_numbers,
)


@contextlib.contextmanager
def _deaf_processes() -> Generator[None]:
    """Inside the ``with`` block, new processes ignore Ctrl+C and the closing of the terminal.

    A terminal sends both signals to all processes, but the run needs these processes until the run
    itself has ended. The new processes inherit this thread's signal mask.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows.
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@no_type_check
class VectorStepper:
    """A ``Stepper`` for a vector environment.

    In mode ``SAME_STEP``, the infos have an episode's last observation. In mode ``DISABLED``, and
    for Gymnasium's own vectors in mode ``NEXT_STEP``, the stepper resets ended environments at
    once. Other vectors in mode ``NEXT_STEP``, which spend a step on the reset, are refused.
    """

    def __init__(self, make: Any, layout: Any, arrays: Any) -> None:
        self._layout, self.arrays = layout, arrays
        count = layout["num_envs"]
        with _deaf_processes():
            self._vector = make(count)
        if self._vector.num_envs != count:
            raise UnfitError(f"has {self._vector.num_envs} environments; {count} were asked for")
        inner, modes = self._vector.unwrapped, gymnasium.vector.AutoresetMode
        # All vectors of a class in Gymnasium share ``metadata``, so ask the vector itself first.
        known = self._vector.metadata.get("autoreset_mode", modes.NEXT_STEP)
        mode = modes(getattr(inner, "autoreset_mode", known))
        own = gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv
        self._is_own = isinstance(inner, own)
        # Without shared memory, a worker forgets that it has just been reset.
        forgets = not getattr(inner, "shared_memory", True)
        self._same_step = mode == modes.SAME_STEP
        self._resets_some = mode == modes.DISABLED or (self._is_own and not forgets)
        if mode == modes.NEXT_STEP and not self._resets_some:
            raise UnfitError(
                "its autoreset mode NEXT_STEP spends a step on each reset; make it with the mode "
                "SAME_STEP or DISABLED (an AsyncVectorEnv also with shared memory)"
            )
        kind, name = layout["mask"]
        self._masks = find_masks_of(self._vector, (name,))[1] if kind == "method" else None
        leaves = [(path, span) for path, _, _, span in layout["leaves"]]
        arrays["final_mask"][:] = True
        self._leaves = {
            name: [(*leaf, arrays[f"{name}{i}"]) for i, leaf in enumerate(leaves)]
            for name in ("next", "final")
        }

    def reset(self) -> None:
        """Starts an episode in each environment, from the environment's seed."""
        seeds = self.arrays["seed"].tolist()
        result = self._vector.reset(seed=seeds if self._is_own else seeds[0])
        observation, info = check_returned(result, "reset")
        self.arrays["numbers"][:] = 0
        self.arrays["ends"][:] = False
        everywhere = np.ones(len(seeds), bool)
        self._store_infos(info, everywhere)
        self._store("next", observation, everywhere)
        self._store_masks(info, observation, everywhere)

    def step(self) -> None:
        """Steps each environment; begins a new episode where one ended or is truncated."""
        arrays, start = self.arrays, self._layout["start"]
        actions = arrays["action"] + start
        result = check_returned(self._vector.step(actions), "step")
        observation, reward, terminated, truncated, info = result
        ended = np.asarray(terminated, bool) | np.asarray(truncated, bool)
        cut = arrays["cut"] & ~ended
        must = "rewards must be one number for each environment"
        store_numbers(arrays["numbers"], (slice(None), 0), reward, must)
        arrays["ends"][:, 0] = terminated
        arrays["ends"][:, 1] = truncated
        self._store_infos(info, ~ended if self._same_step else np.ones_like(ended))
        if self._same_step and ended.any():
            final = info.get("final_obs")
            if final is None:
                raise UnfitError('infos have no "final_obs", though an episode has ended')
            self._store_infos(info.get("final_info", {}), ended)
            self._store("final", final, ended)
        self._store("next", observation, slice(None))
        again = cut if self._same_step else cut | ended
        if again.any():
            self._store("final", observation, again)
            self._store_last_masks(info, observation, again)
            if self._resets_some:
                begun, new_info = self._vector.reset(options={"reset_mask": again.copy()})
                self._store("next", begun, again)
                self._store_masks(new_info, begun, again)
            else:
                raise UnfitError(
                    "an episode took more steps than asked for, and the vector cannot reset one "
                    "environment; give its environments a limit of their own"
                )
        # Where no episode begins again, `info` describes the next observation.
        self._store_masks(info, observation, ~again)

    def close(self) -> None:
        """Closes the vector, silently."""
        close_silently(self._vector)

    def _store(self, name: Any, observation: Any, rows: Any) -> None:
        # Final observations may be an array of objects, one per environment.
        are_objects = isinstance(observation, np.ndarray) and observation.dtype == object
        for path, span, array in self._leaves[name]:
            if not are_objects:
                store(array, rows, np.asarray(part_of(observation, path))[rows], path, span)
                continue
            for row in np.flatnonzero(rows):
                store(array, row, part_of(observation[row], path), path, span)

    def _store_infos(self, info: Any, rows: Any) -> None:
        for i, name in enumerate(self._layout["infos"], 1):
            values = info.get(name)
            if values is None:
                self.arrays["numbers"][rows, i] = 0
            else:
                known = np.asarray(info.get(f"_{name}", True)) & rows
                numbers = np.where(known, np.where(known, values, 0).astype(np.float32), 0)
                self.arrays["numbers"][rows, i] = numbers[rows]

    def _store_masks(self, info: Any, observation: Any, rows: Any) -> None:
        if not rows.any():
            return
        layout, target = self._layout, self.arrays["mask"]
        if layout["mask"][0] is None:
            target[rows] = True
            return
        masks = self._read_masks(info, observation)
        for row in np.flatnonzero(rows):
            target[row] = check_mask(masks[row], layout)

    def _read_masks(self, info: Any, observation: Any) -> Any:
        if self._masks is not None:
            return self._masks()
        return read_entry(info, observation, self._layout["mask"])

    def _store_last_masks(self, info: Any, observation: Any, rows: Any) -> None:
        """Where an episode was cut off; all True if there is no mask, or none that allows any."""
        target = self.arrays["final_mask"]
        target[rows] = True
        if self._layout["mask"][0] is None:
            return
        for row in np.flatnonzero(rows):
            with contextlib.suppress(UnfitError):
                target[row] = check_mask(self._read_masks(info, observation)[row], self._layout)


def find_masks_of(vector: Any, names: Sequence[str] = METHODS) -> Any:
    """Does what ``find_masks`` does, for the methods of a vector or of its environments."""
    inner = vector.unwrapped
    layers = [vector]
    while layers[-1] is not inner:
        layers.append(layers[-1].env)
    for layer in layers:
        for name in names:
            if hasattr(layer, name):
                return name, getattr(layer, name)
    found = None
    if isinstance(inner, gymnasium.vector.SyncVectorEnv):
        found = find_masks(inner.envs[0], names)
    elif isinstance(inner, gymnasium.vector.AsyncVectorEnv):
        # The vector breaks if its environments lack the method, so ask a separate environment.
        env = inner.env_fns[0]()
        try:
            found = find_masks(env, names)
        finally:
            close_silently(env)
    return found and (found[0], partial(inner.call, found[0]))

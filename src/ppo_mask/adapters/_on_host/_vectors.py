"""Steps a vector environment of Gymnasium, which resets its environments itself."""

from typing import Any

import numpy as np

from ppo_mask.adapters._gymnasium import gymnasium
from ppo_mask.adapters._on_host._stepper import (
    TERMINATED,
    TRUNCATED,
    Layout,
    UnfitError,
    check_mask,
    check_returned,
    close_silently,
    part_of,
    read_entry,
    record_of,
    store,
    store_numbers,
)


def check_vector(vector: Any) -> None:
    """Refuses vectors that gain nothing over ``GymnasiumEnv``, or do not reset within a step."""
    inner, modes = vector.unwrapped, gymnasium.vector.AutoresetMode
    name = type(inner).__name__
    if isinstance(inner, gymnasium.vector.SyncVectorEnv | gymnasium.vector.AsyncVectorEnv):
        raise ValueError(
            f"{name} steps environments one by one, as GymnasiumEnv does by itself: give it what "
            "makes one of them, and num_workers for processes"
        )
    mode = modes(vector.metadata.get("autoreset_mode", modes.NEXT_STEP))
    if mode != modes.SAME_STEP:
        raise ValueError(
            f"{name}: its autoreset mode is {mode.name}; make it with the mode SAME_STEP, which "
            "begins an episode within the step that ends one"
        )


def find_method_of(vector: Any, names: Any) -> Any:
    """Does what ``find_method`` does, for a vector."""
    layers = [vector]
    while layers[-1] is not vector.unwrapped:
        layers.append(layers[-1].env)
    found = [(name, getattr(x, name)) for name in names for x in layers if hasattr(x, name)]
    return found[0] if found else None


class VectorStepper:
    """A ``Stepper`` for a vector environment, whose infos have an episode's last observation.

    No vector says which mask an episode's last state had, so it allows all actions.
    """

    def __init__(self, make: Any, layout: Layout, num_envs: int) -> None:
        self._layout, self._vector = layout, make(num_envs)
        if self._vector.num_envs != num_envs:
            raise UnfitError(f"has {self._vector.num_envs} environments; {num_envs} were asked for")
        self.arrays: Any = np.zeros(num_envs, record_of(layout))
        self.arrays["mask"] = self.arrays["final_mask"] = True
        kind, name = layout.mask
        self._masks = find_method_of(self._vector, [name])[1] if kind == "method" else None

    def reset(self) -> None:
        """Starts an episode in each environment, from the first environment's seed."""
        result = self._vector.reset(seed=int(self.arrays["seed"][0]))
        observation, info = check_returned(result, "reset")
        everywhere = np.ones(len(self.arrays), bool)
        self._store_infos(info, everywhere)
        self._store("next", observation, everywhere)
        self._store_masks(info, observation)

    def step(self) -> None:
        """Steps each environment, which begins a new episode where one ends."""
        arrays = self.arrays
        result = check_returned(self._vector.step(arrays["action"] + self._layout.start), "step")
        observation, reward, terminated, truncated, info = result
        must = "rewards must be one number for each environment"
        store_numbers(arrays["numbers"], (slice(None), 0), reward, must)
        arrays["row"][:, TERMINATED], arrays["row"][:, TRUNCATED] = terminated, truncated
        ended = np.asarray(terminated, bool) | np.asarray(truncated, bool)
        if (arrays["cut"] & ~ended).any():
            raise UnfitError(
                "an episode took more steps than asked for, and the vector cannot reset one "
                "environment; give its environments a limit of their own"
            )
        self._store_infos(info, ~ended)
        self._store("next", observation, np.ones_like(ended))
        self._store_masks(info, observation)
        if ended.any():
            if "final_obs" not in info:
                raise UnfitError('infos have no "final_obs", though an episode has ended')
            self._store("final", info["final_obs"], ended)
            self._store_infos(info.get("final_info", {}), ended)

    def close(self) -> None:
        """Closes the vector, silently."""
        close_silently(self._vector)

    def _store(self, name: str, observation: Any, rows: Any) -> None:
        # Final observations may be an array of objects, one per environment.
        are_objects = isinstance(observation, np.ndarray) and observation.dtype == object
        for i, (path, _, _, span) in enumerate(self._layout.leaves):
            array = self.arrays[f"{name}{i}"]
            if not are_objects:
                store(array, rows, np.asarray(part_of(observation, path))[rows], path, span)
                continue
            for row in np.flatnonzero(rows):
                store(array, row, part_of(observation[row], path), path, span)

    def _store_infos(self, info: Any, rows: Any) -> None:
        for i, name in enumerate(self._layout.infos, 1):
            known = np.asarray(info.get(f"_{name}", True)) & rows
            values = np.where(known, info.get(name, 0), 0).astype(np.float32)
            self.arrays["numbers"][rows, i] = values[rows]

    def _store_masks(self, info: Any, observation: Any) -> None:
        layout = self._layout
        if layout.mask[0] is None:
            return
        masks = self._masks() if self._masks else read_entry(info, observation, layout.mask)
        for row, target in enumerate(self.arrays["mask"]):
            target[...] = check_mask(masks[row], layout)

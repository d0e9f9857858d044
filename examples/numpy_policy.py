"""Plays a policy of HackMatrix that ``hackmatrix export`` wrote; needs NumPy and nothing else.

    policy = Policy("policy.npz")
    action = policy(observation, action_mask)

docs/export.md describes the file.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Layer = tuple[Array, Array]

SIZE, CELLS, CHANNELS, PROGRAMS, PLAYER = 6, 36, 42, 23, 10
ENEMY, BLOCK, PROGRAM, TURNS, EXIT = slice(4), slice(7, 10), slice(12, 35), 36, 40
TARGET = [*range(7), TURNS]  # The channels of the entity that a move would hit.
STEPS = ((1, 0), (-1, 0), (0, -1), (0, 1))  # up, down, left, right


class Policy:
    """The greedy policy in an exported file."""

    def __init__(self, path: Path | str):
        with np.load(path, allow_pickle=False) as file:
            arrays: dict[str, Array] = dict(file)
        self.description: dict[str, Any] = json.loads(str(arrays.pop("description")))
        model = self.description["architecture"]["hyperparameters"]
        parts = [model[part]["network"] for part in ("reader", "network")]
        if parts != ["PlayerCentered", "MLPActorCritic"]:
            raise ValueError(f"{path} does not hold the default network, but {parts}")
        (self.mlp,) = self.description["mlp"]
        shared = layers(arrays, "trunk")
        self.layers = {name: shared + layers(arrays, name) for name in ("actor", "critic")}
        self.time_aware = model["reader"]["hyperparameters"]["time_aware"]
        self.moments = {name.split(".")[-1]: x for name, x in arrays.items() if "moments." in name}

    def __call__(self, observation: Array, action_mask: Array, steps: int = 0) -> int:
        """The action for an observation, float32[1545], under a mask, bool[28].

        Args:
            observation: the flat observation.
            action_mask: True where an action is allowed.
            steps: actions taken in the game, for a time-aware policy.
        """
        logits = self._run("actor", observation, steps)
        return int(np.argmax(np.where(action_mask, logits, -np.inf)))

    def value(self, observation: Array, steps: int = 0) -> float:
        """The expected return."""
        return float(self._run("critic", observation, steps)[0])

    def _run(self, name: str, observation: Array, steps: int) -> Array:
        x = features(observation)
        if self.time_aware:
            x = np.append(x, np.float32(min(steps // 8, 127) / 32))
        if self.moments:
            deviation = np.sqrt(self.moments["variance"] + 1e-8)
            x = np.clip((x - self.moments["mean"]) / deviation, -10, 10)
        *hidden, (weight, bias) = self.layers[name]
        for w, b in hidden:
            x = w @ x + b
            if self.mlp["layer_norm"]:
                x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
            x = np.tanh(x)
        gain = self.mlp["policy_gain"] if name == "actor" else 1.0
        return weight @ (gain * x) + bias


def layers(arrays: dict[str, Array], name: str) -> list[Layer]:
    """Finds the weight and bias of each layer of ``trunk``, ``actor`` or ``critic``."""
    found: dict[int, dict[str, Array]] = {}
    for key, array in arrays.items():
        *_, owner, number, kind = ["", *key.split(".")]
        if owner == name:
            found.setdefault(int(number), {})[kind] = array
    return [(found[n]["weight"], found[n]["bias"]) for n in sorted(found)]


def features(observation: Array) -> Array:
    """Computes the network's features: the board relative to the player."""
    player = observation[: PLAYER + PROGRAMS]
    grid = observation[PLAYER + PROGRAMS :].reshape(SIZE, SIZE, CHANNELS)
    row, col = (round(float(x) * (SIZE - 1)) for x in player[:2])
    plain = np.concatenate([grid[..., : PROGRAM.start], grid[..., PROGRAM.stop :]], axis=-1)
    rolled = np.roll(plain, (-row, -col), axis=(0, 1))

    programs = np.zeros((PROGRAMS, 3))
    for r, c, program in np.argwhere(grid[..., PROGRAM]):
        programs[program] += [(r - row) / SIZE, (c - col) / SIZE, 1]

    blocks: Array = np.asarray(grid[..., BLOCK].any(axis=-1))
    entities: Array = np.asarray(grid[..., ENEMY].any(axis=-1) | (grid[..., TURNS] > 0))
    edges, ways, targets = np.zeros(4), np.zeros(4), np.zeros((4, len(TARGET)))
    r, c = np.argwhere(grid[..., EXIT])[0]
    walk = distances(blocks, (int(r), int(c)))
    around = [walk.get((row + dr, col + dc), CELLS) for dr, dc in STEPS]
    for n, (dr, dc) in enumerate(STEPS):
        r, c = row + dr, col + dc
        edges[n] = not on_board(r, c)
        ways[n] = around[n] == min(around) < CELLS
        while on_board(r, c) and not (entities[r, c] or blocks[r, c]):
            r, c = r + dr, c + dc
        if on_board(r, c) and entities[r, c]:
            targets[n] = grid[r, c, TARGET]
    distance = (min(around) + 1) / 10 if min(around) < CELLS else 0
    parts = [player, rolled, programs, targets, edges, ways, np.array([distance])]
    return np.concatenate([np.ravel(part) for part in parts]).astype(np.float32)


def on_board(r: int, c: int) -> bool:
    """Whether the cell is on the board."""
    return 0 <= r < SIZE and 0 <= c < SIZE


def distances(blocks: Array, goal: tuple[int, int]) -> dict[tuple[int, int], int]:
    """The steps to the goal from each cell that reaches it around the blocks."""
    steps, edge = {goal: 0}, [goal]
    while edge:
        r, c = edge.pop(0)
        for dr, dc in STEPS:
            cell = (r + dr, c + dc)
            if on_board(*cell) and cell not in steps and not blocks[cell]:
                steps[cell] = steps[r, c] + 1
                edge.append(cell)
    return steps

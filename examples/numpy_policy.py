"""Plays a policy that ``export`` wrote as an ``.npz``; needs NumPy and nothing else.

    policy = Policy("policy.npz")
    action = policy(observation, action_mask)

docs/export.md describes the file.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SIZE, CELLS, CHANNELS, PROGRAMS, PLAYER = 6, 36, 42, 23, 10
ENEMY, BLOCK, PROGRAM, TURNS, EXIT = slice(4), slice(7, 10), slice(12, 35), 36, 40
TARGET = [*range(7), TURNS]  # The channels of the entity that a move would hit.
STEPS = ((1, 0), (-1, 0), (0, -1), (0, 1))  # up, down, left, right
LARGEST = 12  # Larger grids are halved.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
}


class Policy:
    """The greedy policy in an exported file: any network of the library.

    A recurrent policy has a memory, which :meth:`begin` empties for a new episode.
    """

    def __init__(self, path: Path | str):
        with np.load(path, allow_pickle=False) as file:
            self.arrays: dict[str, Array] = dict(file)
        self.description: dict[str, Any] = json.loads(str(self.arrays.pop("description")))
        model: Any = plain(self.description["architecture"])["hyperparameters"]
        parts = [model[part]["network"] for part in ("reader", "network")]
        self.reader, self.network = (
            model[part]["hyperparameters"] for part in ("reader", "network")
        )
        readers = {
            "ArrayReader": self.arrays_of,
            "IdentityReader": self.arrays_of,
            "PlayerCentered": self.features_of,
            "SetReader": self.sets_of,
        }
        networks: dict[str, Callable[..., tuple[Array, Array]]] = {
            "MLPActorCritic": self.mlp,
            "GRUActorCritic": self.gru,
            "ConvActorCritic": self.conv,
            "SetActorCritic": self.sets,
        }
        if parts[0] not in readers or parts[1] not in networks:
            raise ValueError(f"{path} does not hold a network of the library, but {parts}")
        self.read: Callable[[Any, int], Any] = readers[parts[0]]
        self.run = networks[parts[1]]
        self.act = ACTIVATIONS[self.network.get("activation", "tanh")]
        self.begin()

    def begin(self) -> None:
        """Begins an episode."""
        self.hidden = self.next_hidden = np.zeros(self.network["hidden_dim"], np.float32)

    def __call__(self, observation: Any, mask: Array, steps: int = 0, part_mask: Any = None) -> Any:
        """The action for an observation; if MultiDiscrete, a number for each part.

        Args:
            observation: an array, or a dict or list of some.
            mask: True where an action is allowed.
            steps: actions taken in the game, for a time-aware policy of HackMatrix.
            part_mask: where the parts' masks depend on each other, ``part_mask(prefix, k)`` gives
                that of part k after the choices before it.
        """
        logits, _ = self.run(*self.read(observation, steps), mask)
        self.hidden, sizes = self.next_hidden, self.network["num_actions"]
        if isinstance(sizes, int):
            return int(np.argmax(np.where(mask, logits, -np.inf)))
        choices, rows = list[int](), logits.reshape(sum(sizes), -1)
        chosen, starts = np.zeros(rows.shape[1] - 1), np.cumsum([0, *sizes])
        for k, size in enumerate(sizes):
            place = slice(starts[k], starts[k] + size)
            scores = rows[place, 0] + rows[place, 1:] @ chosen
            allowed = part_mask(choices, k) if part_mask is not None and k else mask[place]
            choices.append(int(np.argmax(np.where(allowed, scores, -np.inf))))
            if len(chosen):
                chosen = chosen + self.arrays["network.earlier"][starts[k] + choices[-1]]
        return choices

    def value(self, observation: Any, mask: Array, steps: int = 0) -> float:
        """The expected return."""
        return float(self.run(*self.read(observation, steps), mask)[1][0])

    def features_of(self, observation: Array, steps: int) -> list[Array]:
        """HackMatrix's features, normalized."""
        x = features(observation)
        if self.reader["time_aware"]:
            x = np.append(x, np.float32(min(steps // 8, 127) / 32))
        return self.normalized([x])

    def arrays_of(self, observation: Any, steps: int) -> list[Array]:
        """A vector, or a grid and a vector."""
        del steps
        leaves = self.normalized(flat(observation))
        for n, bounds in enumerate(self.reader.get("bounds", [])):
            if bounds is not None:
                leaves[n] = (leaves[n] - bounds[0]) / (bounds[1] - bounds[0])
        inputs: list[Array] = []
        if (shape := self.reader.get("grid_shape")) is not None:
            grid = leaves.pop(next(n for n, x in enumerate(leaves) if x.shape == shape))
            if (kinds := self.reader["kinds"]) is not None:
                grid = (grid[..., None] == np.arange(kinds[0], kinds[1] + 1)).astype(np.float32)
            inputs = [np.moveaxis(grid, 0, -1) if self.reader["channels_first"] else grid]
        return [*inputs, joined(leaves)]

    def sets_of(self, observation: Any, steps: int) -> list[Any]:
        """Each set's features and mask, and a vector of the rest."""
        del steps
        sets = self.reader["sets"]
        named = {name for names in sets for name in names}
        names = [n for n in sorted(observation) if n != "action_mask" or n in named]
        counts = [len(flat(observation[name])) for name in names]
        leaves = iter(self.normalized(flat([observation[name] for name in names])))
        arrays = {
            name: [next(leaves) for _ in range(n)] for name, n in zip(names, counts, strict=True)
        }
        found: list[tuple[Array, Array]] = []
        for *parts, mask in sets:
            columns = [np.asarray(x) for name in parts for x in arrays[name]]
            x = np.concatenate([y.reshape(len(y), -1) for y in columns], axis=-1)
            found.append((x, np.ones(len(x), bool) if mask is None else arrays[mask][0]))
        return [found, joined([x for name in names if name not in named for x in arrays[name]])]

    def normalized(self, leaves: list[Array]) -> list[Array]:
        """Arrays, those of floats shifted and scaled if the policy was trained so."""
        number = 0
        for n, x in enumerate(leaves):
            if x.dtype.kind == "f" and f"moments.{number}.mean" in self.arrays:
                mean, variance = (
                    self.arrays[f"moments.{number}.{of}"] for of in ("mean", "variance")
                )
                leaves[n] = np.clip((x - mean) / np.sqrt(variance + 1e-8), -10, 10)
                number += 1
        return leaves

    def layer(self, name: str, x: Array, gain: float = 1.0) -> Array:
        """A linear layer."""
        weight, bias = (self.arrays[f"network.{name}.{x}"] for x in ("weight", "bias"))
        return (gain * x) @ weight.T + bias

    def hidden_layer(self, name: str, x: Array) -> Array:
        """A linear layer, a layer norm if the network has some, and the activation."""
        x = self.layer(name, x)
        return self.act(standardized(x) if self.network["layer_norm"] else x)

    def mlp(self, x: Array, mask: Array) -> tuple[Array, Array]:
        """The logits and the value of two MLPs, which may share their first layers."""
        del mask
        of, heads = self.network, list[Array]()
        for n in range(of["shared_layers"]):
            x = self.hidden_layer(f"trunk.{n}", x)
        for name, gain in (("actor", of["policy_gain"]), ("critic", 1.0)):
            y, last = x, of["num_layers"] - of["shared_layers"]
            for n in range(last):
                y = self.hidden_layer(f"{name}.{n}", y)
            heads.append(self.layer(f"{name}.{last}", y, gain))
        return heads[0], heads[1]

    def gru(self, x: Array, mask: Array) -> tuple[Array, Array]:
        """The same of a gated recurrent unit."""
        del mask
        new = np.split(self.layer("gates", self.hidden_layer("encoder", x)), 3)
        old = np.split(self.layer("recurrent_gates", self.hidden), 3)
        reset, update = (1 / (1 + np.exp(-new[n] - old[n])) for n in range(2))
        hidden = update * self.hidden + (1 - update) * np.tanh(new[2] + reset * old[2])
        self.next_hidden = hidden
        logits = self.layer("actor", hidden, self.network["policy_gain"])
        return logits, self.layer("critic", hidden)

    def conv(self, grid: Array, others: Array, mask: Array) -> tuple[Array, Array]:
        """The same of convolutions."""
        del mask
        n = 0
        while f"network.convolutions.{n}.weight" in self.arrays:
            rows, columns, _ = grid.shape
            step = 2 if max(rows, columns) > LARGEST else 1
            x = np.pad(grid, ((1, 1), (1, 1), (0, 0)))
            near = [
                x[i : i + rows : step, j : j + columns : step] for i in range(3) for j in range(3)
            ]
            grid = np.maximum(self.layer(f"convolutions.{n}", np.concatenate(near, axis=-1)), 0)
            n += 1
        x = np.tanh(self.layer("hidden", np.concatenate([grid.reshape(-1), others])))
        logits = self.layer("actor", x)
        if "network.cells.weight" in self.arrays:
            of_cells = self.layer("cells", grid).reshape(-1)
            logits[: of_cells.size] += of_cells
        return logits, self.layer("critic", x)

    def sets(
        self, sets: list[tuple[Array, Array]], rest: Array, mask: Array
    ) -> tuple[Array, Array]:
        """The same of sets, whose elements look at each other."""
        sizes, there = self.network["num_actions"], [valid for _, valid in sets]
        sees = [[np.tile(y, (len(x), 1)) for y in there] for x in there]
        lengths, is_number = tuple(len(x) for x in there), isinstance(sizes, int)
        is_assignment = not is_number and sizes != lengths[: len(sizes)]
        pairs = is_assignment or (is_number and len(sets) > 1 and sees[0][1].size <= sizes)
        if pairs:  # An element sees those with which the mask allows a pair.
            rows, columns = sees[0][1].shape
            each = sizes[0] if is_assignment else columns
            allowed = np.asarray(mask)[: rows * each].reshape(rows, each)[:, :columns]
            sees[0][1], sees[1][0] = sees[0][1] & allowed, sees[1][0] & allowed.T
        context = self.layer("context", np.append(rest, 1))
        elements = [
            standardized(self.layer(f"embeddings.{n}", np.where(valid[:, None], x, 0)) + context)
            for n, (x, valid) in enumerate(sets)
        ]
        for block in range(self.network["num_layers"]):
            before, after, hidden, out = (f"blocks.{block}.{n}" for n in range(4))
            of = [np.split(self.layer(before, standardized(x)), 6, axis=-1) for x in elements]
            for i, (q, k, v, q_others, _, _) in enumerate(of):
                others = [j for j in range(len(of)) if j != i] or [i]
                keys, values = (np.concatenate([of[j][n] for j in others]) for n in (4, 5))
                across = np.concatenate([sees[i][j] for j in others], axis=-1)
                mixed = [attended(q, k, v, sees[i][i]), attended(q_others, keys, values, across)]
                elements[i] = elements[i] + self.layer(after, np.concatenate(mixed, axis=-1))
            elements = [
                x + self.layer(out, self.act(self.layer(hidden, standardized(x)))) for x in elements
            ]
        elements = [standardized(x) for x in elements]
        means = [valid @ x / max(valid.sum(), 1) for x, valid in zip(elements, there, strict=True)]
        pooled = np.concatenate([*means, context])
        count = 2 if pairs else len(sizes) if isinstance(sizes, tuple) else 1
        scores = [self.layer(f"pointers.{n}", x) for n, x in enumerate(elements[:count])]
        if pairs:
            scores = [scores[0] @ scores[1].T * self.network["hidden_dim"] ** -0.5]
        if "network.others.weight" in self.arrays:
            scores.append(self.layer("others", elements[0] if is_assignment else pooled))
        if is_assignment:
            scores = [np.concatenate(scores, axis=-1)]
        return joined(scores), self.layer("critic", pooled)


def flat(observation: Any) -> list[Array]:
    """The arrays of an observation, in the order of JAX."""
    if isinstance(observation, dict):
        return [x for name in sorted(observation) for x in flat(observation[name])]
    if isinstance(observation, list | tuple):
        return [x for each in observation for x in flat(each)]
    return [np.asarray(observation)]


def joined(arrays: list[Array]) -> Array:
    """All numbers as one vector."""
    return np.concatenate([np.ravel(x) for x in arrays] or [np.zeros(0)])


def standardized(x: Array) -> Array:
    """Vectors with mean 0 and variance 1."""
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5)


def attended(q: Array, k: Array, v: Array, seen: Array) -> Array:
    """One head of attention."""
    scores = np.where(seen, q @ k.T * q.shape[-1] ** -0.5, -1e9)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def plain(stored: Any) -> Any:
    """Hyperparameters as they were before JSON, which has no tuples."""
    if isinstance(stored, list):
        return [plain(x) for x in stored]
    if isinstance(stored, dict):
        if stored.keys() == {"tuple"}:
            return tuple(map(plain, stored["tuple"]))
        return {name: plain(x) for name, x in stored.items()}
    return stored


def features(observation: Array) -> Array:
    """Computes the features of HackMatrix: the board relative to the player."""
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

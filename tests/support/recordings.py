"""The recordings of the original game in ``tests/data``, and positions in a comparable form.

A position becomes one row of integers, equal for equal positions: lists are sorted, and what the
recordings leave to chance (where something spawned, what a new stage looks like) is left out.
"""

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hackmatrix import HackMatrix, State
from hackmatrix.positions import FIELD_OF
from hackmatrix.rules.entities import ENEMY, TRANSMISSION
from hackmatrix.rules.planes import NUM_CELLS
from hackmatrix.rules.programs import Program
from hackmatrix.rules.rewards import COMPONENTS

DATA = Path(__file__).parents[1] / "data"
UNDO_ACTION = 5 + Program.UNDO
ENTITY_ROOM = 40  # more than any recording has
NUMBERS = ["stage", "turn", "show", "calm", "step", "atk_uses", "interval", "next_task", "pending"]


def read(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / name, "rt") as file:
        return [json.loads(line) for line in file]


def layouts() -> dict[str, Any]:
    return json.loads((DATA / "layouts.json").read_text())


def _padded(values: list[int]) -> list[int]:
    assert len(values) <= ENTITY_ROOM
    return sorted(values) + [-1] * (ENTITY_ROOM - len(values))


def _code(digits: Iterable[Any]) -> Any:
    """Small numbers as one; of integers or of arrays of them."""
    code = 0
    for digit in digits:
        code = code * 64 + digit
    return code


def recorded_row(outcome: dict[str, Any]) -> list[int]:
    """A recorded outcome as a row."""
    state = outcome["state"]
    cells = {tuple(cell[:2]): cell[2:] for cell in state["cells"]}
    nothing = [0, 0, -1, 0, 0, 0, 0, 0]
    new_stage = outcome["advanced"] and not outcome["won"]
    grid = [0] * 8 * NUM_CELLS
    if not new_stage:
        grid = [x for i in range(NUM_CELLS) for x in cells.get(divmod(i, 6), nothing)]
    spawned = [
        _code((turns, siphon, task))
        for turns, siphon, task, count in state.get("spawned", [])
        for _ in range(count)
    ]
    return [
        *(state[name] for name in NUMBERS),
        *state["player"],
        sum(1 << number for number in state["owned"]),
        *(state["exit"] if not new_stage else (-1, -1)),
        outcome["success"],
        outcome["advanced"],
        outcome["won"],
        outcome["died"],
        *grid,
        *_padded([_code(enemy) for enemy in state["enemies"]]),
        *_padded([_code(transmission) for transmission in state["transmissions"]]),
        *_padded(spawned),
        *([-1] if outcome["mask"] is None else [sum(1 << a for a in outcome["mask"])]),
    ]


def recorded_observation(recorded: dict[str, Any]) -> np.ndarray:
    """A recorded observation, flat; programs and grid are recorded by their entries over 0."""
    programs, grid = np.zeros(23), np.zeros(NUM_CELLS * 42)
    programs[recorded["programs"]] = 1
    for index, value in recorded["grid"]:
        grid[index] = value
    return np.concatenate([recorded["player"], programs, grid])


def _device_row(
    env: HackMatrix, before: State, state: State, info: dict[str, jax.Array], undone: jax.Array
) -> dict[str, jax.Array]:
    """The same row, from our state, on the device."""
    game = state.game
    board, table, player = game.board, game.entities, game.player
    new_stage = info["stage_completed"] & ~info["won"]
    kind = jnp.where(board.pickups.flags(), 5, 0)
    kind = jnp.where(board.exits.flags(), 6, kind)
    kind = jnp.where(board.data.flags(), 1, kind)
    kind = jnp.where(board.program_blocks.flags(), 2, kind)
    kind = kind + 2 * board.question.flags()
    grid = jnp.stack(
        [
            kind,
            board.points,
            board.program,
            board.spawn_count,
            board.credits,
            board.energy,
            board.siphoned.flags(),
            board.centers.flags(),
        ],
        axis=1,
    )
    # A new stage numbers those that stay afresh; UNDO brings all of them back as new ones.
    known = jnp.where(new_stage, game.births - game.stage, before.game.births)
    known = jnp.where(undone, 0, known)
    born_now = table.is_transmission & (table.order >= known.astype(jnp.uint32))

    def listed(members: jax.Array, digits: Iterable[jax.Array]) -> jax.Array:
        # 64 ** 8 is past int32: two halves, sorted together.
        digits = [digit.astype(jnp.int32) for digit in digits]
        return jnp.where(members[:, None], jnp.stack(digits, axis=1), -1)

    row, col = table.cell // 6, table.cell % 6
    numbers = [getattr(game, FIELD_OF.get(name, name)) for name in NUMBERS]
    scalars = [
        *numbers,
        player.cell // 6,
        player.cell % 6,
        player.hp,
        player.credits,
        player.energy,
        player.data_siphons,
        player.score,
        player.attack,
        game.owned,
        jnp.where(new_stage, -1, game.exit // 6),
        jnp.where(new_stage, -1, game.exit % 6),
        ~info["invalid_action"],
        info["stage_completed"],
        info["won"],
        info["died"],
    ]
    mask = env.action_mask(state)
    bits = jnp.sum(jnp.where(mask, 1 << jnp.arange(28), 0))
    return {
        "scalars": jnp.stack([jnp.asarray(x).astype(jnp.int32) for x in scalars]),
        "grid": jnp.where(new_stage, 0, grid).reshape(-1).astype(jnp.int32),
        "enemies": listed(
            table.kind == ENEMY,
            (
                table.type,
                row,
                col,
                table.hp,
                table.disabled,
                table.stunned,
                table.from_siphon,
                table.from_task,
            ),
        ),
        "transmissions": listed(
            (table.kind == TRANSMISSION) & ~born_now,
            (row, col, table.turns, table.type, table.from_siphon, table.from_task),
        ),
        "spawned": listed(born_now, (table.turns, table.from_siphon, table.from_task)),
        "mask": bits[None],
    }


def _sorted_codes(listed: np.ndarray) -> np.ndarray:
    members = listed[..., 0] >= 0
    digits = [listed[..., i].astype(np.int64) for i in range(listed.shape[-1])]
    codes = np.where(members, _code(digits), np.iinfo(np.int64).max)
    codes = np.sort(codes, axis=-1)[..., :ENTITY_ROOM]
    return np.where(codes == np.iinfo(np.int64).max, -1, codes)


def player_of(env: HackMatrix) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """A function that plays actions from positions and returns rows and reward components."""

    @jax.jit
    def step(keys, states, actions, active):
        def one(key, state, action, active):
            after, timestep = env.step(key, state, action)
            after = jax.tree.map(lambda a, b: jnp.where(active, a, b), after, state)
            return after, timestep.info

        return jax.vmap(one)(keys, states, actions, active)

    @jax.jit
    def rows(before, states, info, undone):
        return jax.vmap(lambda *args: _device_row(env, *args))(before, states, info, undone)

    def play(
        key: jax.Array, states: State, actions: list[list[int]]
    ) -> tuple[np.ndarray, np.ndarray]:
        # Short sequences wait at the start, so that all end with the same step.
        longest = max(map(len, actions))
        for t in range(longest):
            late = [t - (longest - len(sequence)) for sequence in actions]
            now = jnp.array([s[i] if i >= 0 else 0 for s, i in zip(actions, late, strict=True)])
            active = jnp.array([i >= 0 for i in late])
            key, step_key = jax.random.split(key)
            before = states
            states, info = step(jax.random.split(step_key, len(actions)), states, now, active)
        out = jax.device_get(
            rows(before, states, info, (now == UNDO_ACTION) & ~info["invalid_action"])
        )
        row = np.concatenate(
            [
                out["scalars"],
                out["grid"],
                _sorted_codes(out["enemies"]),
                _sorted_codes(out["transmissions"]),
                _sorted_codes(out["spawned"]),
                out["mask"],
            ],
            axis=-1,
        )
        reward = [info[f"reward/{name}"] for name in COMPONENTS]
        return row, np.stack(jax.device_get(reward), axis=-1)

    return play

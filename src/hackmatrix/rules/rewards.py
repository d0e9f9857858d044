"""The reward: the sum of 15 components."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from hackmatrix.rules.batching import looked_up, materialize, total
from hackmatrix.rules.game import Game

COMPONENTS = (
    "step_penalty",
    "stage_completion",
    "score_gain",
    "kills",
    "data_siphon",
    "distance_shaping",
    "victory",
    "death_penalty",
    "resource_gain",
    "resource_holding",
    "damage_penalty",
    "hp_recovery",
    "siphon_quality",
    "program_waste",
    "siphon_death_penalty",
)

_DISTANCE_REWARD = 0.05
STAGE_REWARDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0)
_SUMS = tuple(np.cumsum((0.0, *STAGE_REWARDS[:-1])).tolist())  # sums over the first n stages


class Events(NamedTuple):
    """Events in a step that the positions before and after the step do not show."""

    kills: Int[Array, ""]  # destroyed entities that are rewarded
    picked_up: Bool[Array, ""]  # the player walked onto a data siphon
    completed: Bool[Array, ""]  # the stage was completed
    won: Bool[Array, ""]  # the game was won
    died: Bool[Array, ""]  # hp is 0 after the enemy turn
    wasted_reset: Bool[Array, ""]  # RESET was run at hp 2
    lost_yield: Int[Array, ""]  # how much more SIPHON would have brought from a better place


class Shaping(eqx.Module):
    """How the reward in training differs from the original reward.

    Attributes:
        weights: a factor for each component, in the order of ``COMPONENTS``; None for 1 each.
        program_bonus: reward for each program earned; UNDO takes back the program and this reward.
        distance_potential: whether a step away from the exit costs what a step toward it earns, so
            that walking back and forth earns nothing. In the original reward, a step away is free.
            See Ng et al. 1999, "Policy invariance under reward transformations".

    Example:
        >>> import hackmatrix as hm
        >>> env = hm.HackMatrix(shaping=hm.Shaping(program_bonus=1.0, distance_potential=True))
    """

    weights: Float[Array, "components"] | None = None
    program_bonus: Float[Array, ""] | float = 0.0
    distance_potential: bool = eqx.field(static=True, default=False)


class Standing(NamedTuple):
    """The numbers of a position that the reward compares with those of the next position."""

    stage: Int[Array, ""]
    hp: Int[Array, ""]
    credits: Int[Array, ""]
    energy: Int[Array, ""]
    score: Int[Array, ""]
    exit_distance: Int[Array, ""]
    programs: Int[Array, ""]


def standing(game: Game) -> Standing:
    """Takes from a position the numbers that the reward needs."""
    player = game.player
    return Standing(
        game.stage,
        player.hp,
        player.credits,
        player.energy,
        player.score,
        _exit_distance(game),
        _programs(game),
    )


def _programs(game: Game) -> Int[Array, ""]:
    return lax.population_count(game.owned).astype(jnp.int32)


def _exit_distance(game: Game) -> Int[Array, ""]:
    return game.board.exit_steps[game.player.cell].astype(jnp.int32)


def components(before: Standing, after: Game, events: Events) -> dict[str, Float[Array, ""]]:
    """The components by name, in the order of ``COMPONENTS``, for a valid action.

    Args:
        before: the numbers before the action.
        after: the position after the enemy turn or, if the stage was completed, before the next
            stage is set up.
        events: the events in between.
    """

    def when(condition: Bool[Array, ""], value: float | Array) -> Float[Array, ""]:
        return jnp.where(condition, value, 0.0).astype(jnp.float32)

    new = after.player
    completed_before = before.stage - 1
    hp_change = new.hp - before.hp
    resource_change = (new.credits + new.energy) - (before.credits + before.energy)
    distance = jnp.where(events.completed, 0, _exit_distance(after))
    closer = jnp.maximum(before.exit_distance - distance, 0)
    table = after.entities
    siphon_killers = table.is_enemy & table.from_siphon & table.beside(new.cell)
    # Materialized, as XLA computes operations fused with a reduction one game at a time.
    killers = materialize(total(siphon_killers), new.cell < 0)
    values: dict[str, Array] = {
        "step_penalty": jnp.float32(-0.01),
        "stage_completion": when(events.completed, looked_up(STAGE_REWARDS, completed_before)),
        "score_gain": 0.5 * (new.score - before.score),
        "kills": 0.3 * events.kills,
        "data_siphon": when(events.picked_up, 1.0),
        "distance_shaping": when(~events.died, _DISTANCE_REWARD * closer),
        "victory": when(events.won, 500.0 + 100.0 * new.score),
        "death_penalty": when(events.died, -0.5 * looked_up(_SUMS, completed_before)),
        "resource_gain": 0.05 * resource_change,
        "resource_holding": when(events.completed, 0.01 * (new.credits + new.energy)),
        "damage_penalty": 1.0 * jnp.minimum(hp_change, 0),
        "hp_recovery": 1.0 * jnp.maximum(hp_change, 0),
        "siphon_quality": (-0.5 * 0.05) * events.lost_yield.astype(jnp.float32),
        "program_waste": when(events.wasted_reset, -0.3),
        "siphon_death_penalty": when(events.died & (killers > 0), -10.0),
    }
    return {name: values[name].astype(jnp.float32) for name in COMPONENTS}


def shape(
    shaping: Shaping,
    components: dict[str, Float[Array, ""]],
    before: Standing,
    after: Game,
    events: Events,
) -> Float[Array, ""]:
    """The training reward of a valid action.

    Args:
        shaping: how the training reward differs from the original reward.
        components: the components of the original reward.
        before: the numbers before the action.
        after: the position after the action.
        events: the events in between.
    """
    if shaping.distance_potential:
        distance = jnp.where(events.completed, 0, _exit_distance(after))
        nearer = jnp.where(events.died, 0, before.exit_distance - distance)
        components = components | {"distance_shaping": _DISTANCE_REWARD * nearer}
    values = jnp.stack(list(components.values()))
    reward = jnp.sum(values if shaping.weights is None else shaping.weights * values)
    earned = (_programs(after) - before.programs).astype(jnp.float32)
    return reward + shaping.program_bonus * earned

"""What the player does to enemies and transmissions, with moves and with programs."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from hackmatrix.rules.batching import total
from hackmatrix.rules.entities import FREE, Entities
from hackmatrix.rules.game import replace


def hurt(table: Entities, hit: Bool[Array, " slots"], damage: Int[Array, ""]) -> Entities:
    """Takes hp from the enemies hit and stuns them; those at 0 are still on the table."""
    left = jnp.maximum(table.hp.astype(jnp.int32) - damage, 0).astype(jnp.int8)
    return replace(table, hp=jnp.where(hit, left, table.hp), stunned=table.stunned | hit)


def bury(
    table: Entities, gone: Bool[Array, " slots"], counted: Bool[Array, " slots"]
) -> tuple[Entities, Int[Array, ""]]:
    """Takes enemies without hp off the table, and all those that are gone.

    Returns:
        The others, and how many count as destroyed by the player: those without hp and those that
        are ``counted``, but for what the schedule brought.
    """
    dead = table.is_enemy & (table.hp <= 0)
    kills = total((dead | counted) & ~table.from_task)
    return replace(table, kind=jnp.where(dead | gone, jnp.int8(FREE), table.kind)), kills

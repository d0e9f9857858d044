"""Enemies and transmissions: one table of slots.

A transmission becomes an enemy in the same slot. Entities never change slots, and a new entity
takes any free slot. The stamp ``order`` sorts the entities in list order: enemies by the turn of
their arrival, then by birth (the order of spawning); transmissions by birth.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, Int8, Int16, Shaped, UInt16, UInt32

from hackmatrix.rules import bits, planes
from hackmatrix.rules.batching import batch_max, join, largest, materialize, smallest
from hackmatrix.rules.planes import Plane
from ppo_mask.jax_tools import by_platform

# With at most one entity on each cell there would be at most 35, but PUSH, PULL and WARP can put
# several enemies on a cell, which makes room for more. 64 slots are two words of bits.
MAX_ENTITIES = 64

FREE, TRANSMISSION, ENEMY = 0, 1, 2
VIRUS, DAEMON, GLITCH, CRYPTOG = 0, 1, 2, 3
NUM_TYPES = 4  # a power of two, so that a remainder is a bit mask
TYPES = ("virus", "daemon", "glitch", "cryptog")
"""The name of each type."""

_WORD_BITS = 32
_AT_A_TIME = 4  # divides MAX_ENTITIES
ARRIVAL_SHIFT = 16
MAX_ARRIVALS = (1 << 16) - 1


class Entities(eqx.Module):
    """All enemies and transmissions.

    Attributes:
        kind: FREE, TRANSMISSION or ENEMY. The other fields of a free slot mean nothing.
        type: VIRUS, DAEMON, GLITCH or CRYPTOG; of a transmission, the type of the enemy to come.
        cell: the cell that the entity is on.
        hp: an enemy's hit points.
        turns: turns until a transmission arrives.
        disabled: turns that an enemy sits out.
        stunned: whether an enemy sits out the next enemy turn.
        from_siphon: whether a siphoned block brought the entity.
        from_task: whether the schedule brought the entity.
        order: sorts the entities in list order; smaller is earlier.
    """

    kind: Int8[Array, "slots"]
    type: Int8[Array, "slots"]
    cell: Int8[Array, "slots"]
    hp: Int8[Array, "slots"]
    turns: Int16[Array, "slots"]
    disabled: Int8[Array, "slots"]
    stunned: Bool[Array, "slots"]
    from_siphon: Bool[Array, "slots"]
    from_task: Bool[Array, "slots"]
    order: UInt32[Array, "slots"]

    @property
    def is_enemy(self) -> Bool[Array, "slots"]:
        """Which slots hold an enemy."""
        return self.kind == ENEMY

    @property
    def is_transmission(self) -> Bool[Array, "slots"]:
        """Which slots hold a transmission."""
        return self.kind == TRANSMISSION

    @property
    def place(self) -> Int8[Array, "slots"]:
        """The cell and the kind, as one number."""
        return self.cell | jnp.where(self.is_enemy, jnp.int8(64), jnp.int8(0))

    def on(self, cell: Int[Array, ""]) -> Bool[Array, "slots"]:
        """Which slots are on a cell; none for -1."""
        return self.cell == cell.astype(jnp.int8)

    def beside(self, cell: Int[Array, ""]) -> Bool[Array, "slots"]:
        """Which slots are orthogonally next to a cell."""
        # Compares bytes: a vector unit takes four times as many bytes as words of a plane.
        there = jnp.where(planes.neighbor_flags(cell), cell + np.array(planes.CELL_STEP), -1)
        up, down, left, right = materialize(there, cell < 0)
        return self.on(up) | self.on(down) | self.on(left) | self.on(right)

    def cells_of(self, members: Bool[Array, "slots"]) -> Plane:
        """The cells on which the members are."""
        return planes.union(self.cell, members)

    @jax.jit
    def occupied(self) -> "Occupied":
        """The cells with enemies, and those with transmissions."""
        both = planes.union(self.cell, self.kind == jnp.array([[ENEMY], [TRANSMISSION]]))
        return Occupied(*(Plane(both.lo[kind], both.hi[kind]) for kind in range(2)))

    def on_cells(self, word: UInt16[Array, "slots"]) -> UInt16[Array, "cells"]:
        """For each cell, the bitwise or of its entities' words; words of free slots must be 0."""
        index = np.arange(planes.NUM_CELLS, dtype=np.int8)

        def look(cell: Array, word: Array) -> Array:
            return jnp.where(cell == index, word, 0)

        return _over_slots(self.kind != FREE, look, self.cell, word)

    def first(self, members: Bool[Array, "slots"]) -> Bool[Array, "slots"]:
        """Flags the member that is first in list order; all False if there is no member."""
        order = jnp.where(members, self.order, jnp.uint32(0xFFFFFFFF))
        return members & (order == smallest(order))


def first_on_each(
    members: Bool[Array, "slots"], key: Int8[Array, "slots"], order: UInt32[Array, "slots"]
) -> Bool[Array, "slots"]:
    """Of the members with the same key, such as a cell, flags the first in list order."""

    def look(member: Array, its_key: Array, its_order: Array) -> Array:
        return member & (its_key == key) & (its_order < order)

    return members & ~_over_slots(members, look, members, key, order)


def _over_slots(
    members: Bool[Array, "slots"],
    look: Callable[..., Shaped[Array, "*n"]],
    *fields: Shaped[Array, "slots"],
) -> Shaped[Array, "*n"]:
    """Bitwise or of ``look`` over the slots' ``fields``; may skip slots after the last member."""

    def in_turns(*fields: Array) -> Array:
        # Entities take low slots first, so the loop ends early.
        used = largest(jnp.where(members, np.arange(1, MAX_ENTITIES + 1), 0))

        def some(turn: Array, found: Array) -> Array:
            first = turn * _AT_A_TIME
            few = [lax.dynamic_slice(field, (first,), (_AT_A_TIME,)) for field in fields]
            for slot in range(_AT_A_TIME):
                found = found | look(*(field[slot] for field in few))
            return found

        turns = lax.div(batch_max(used) + (_AT_A_TIME - 1), _AT_A_TIME)
        one = jax.eval_shape(look, *(field[0] for field in fields))
        return lax.fori_loop(0, turns, some, jnp.zeros(one.shape, one.dtype))

    def all_at_once(*fields: Array) -> Array:
        return join(jax.vmap(look, out_axes=-1)(*fields))

    return by_platform(in_turns, all_at_once, *fields)


class Occupied(NamedTuple):
    """Where entities are.

    Attributes:
        enemies: the cells with an enemy.
        transmissions: the cells with a transmission.
    """

    enemies: Plane
    transmissions: Plane


def no_entities() -> Entities:
    """A table of free slots."""
    byte = jnp.zeros(MAX_ENTITIES, jnp.int8)
    off = jnp.zeros(MAX_ENTITIES, bool)
    return Entities(
        kind=byte,
        type=byte,
        cell=byte,
        hp=byte,
        turns=jnp.zeros(MAX_ENTITIES, jnp.int16),
        disabled=byte,
        stunned=off,
        from_siphon=off,
        from_task=off,
        order=jnp.zeros(MAX_ENTITIES, jnp.uint32),
    )


def full_hp(type: Int8[Array, "*n"]) -> Int8[Array, "*n"]:
    """An enemy's hp when it arrives."""
    return jnp.where(type == DAEMON, jnp.int8(3), jnp.int8(2))


def arrival_order(arrival: Int[Array, ""], born: UInt32[Array, "slots"]) -> UInt32[Array, "slots"]:
    """The list order of enemies that arrive together: after all others, in the order of birth."""
    return (arrival.astype(jnp.uint32) << ARRIVAL_SHIFT) | (born & MAX_ARRIVALS)


class Slots(NamedTuple):
    """A set of slots as bits, for loops that take one slot at a time."""

    lo: UInt32[Array, ""]
    hi: UInt32[Array, ""]

    def any(self) -> Bool[Array, ""]:
        """Whether the set holds a slot."""
        return (self.lo | self.hi) != 0

    def size(self) -> Int[Array, ""]:
        """How many slots the set holds."""
        return (lax.population_count(self.lo) + lax.population_count(self.hi)).astype(jnp.int32)

    def lowest(self) -> Int[Array, ""]:
        """The first slot of the set; unspecified for the empty set."""
        return bits.lowest(self.lo, self.hi, _WORD_BITS)

    def nth(self, rank: Int[Array, ""]) -> Int[Array, ""]:
        """The set's ``rank``-th slot, from 0; the set must hold more than ``rank`` slots."""
        return bits.nth(self.lo, self.hi, _WORD_BITS, rank)

    def with_slot(self, slot: Int[Array, ""], condition: Bool[Array, ""]) -> "Slots":
        """The set with the slot added where the condition holds."""
        lo, hi = bits.single(slot, _WORD_BITS)
        return Slots(
            jnp.where(condition, self.lo | lo, self.lo), jnp.where(condition, self.hi | hi, self.hi)
        )

    def without(self, slot: Int[Array, ""]) -> "Slots":
        """The set without the slot."""
        lo, hi = bits.single(slot, _WORD_BITS)
        return Slots(self.lo & ~lo, self.hi & ~hi)

    def where(self, condition: Bool[Array, ""], otherwise: "Slots") -> "Slots":
        """This set where the condition holds, else ``otherwise``."""
        return Slots(
            jnp.where(condition, self.lo, otherwise.lo), jnp.where(condition, self.hi, otherwise.hi)
        )


def no_slots() -> Slots:
    """No slot."""
    return Slots(jnp.uint32(0), jnp.uint32(0))


def slot_set(members: Bool[Array, "slots"]) -> Slots:
    """The members' slots."""
    return Slots(*bits.pack(members, _WORD_BITS))

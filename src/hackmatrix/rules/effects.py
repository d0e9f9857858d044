"""Evaluates the table of programs: which programs are useful, and what a program does."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Int8

from hackmatrix.rules import bits, paths
from hackmatrix.rules.draws import Draws
from hackmatrix.rules.entities import FREE, Entities, Occupied, first_on_each
from hackmatrix.rules.game import NO_PROGRAM, Board, Game, Player, build, replace
from hackmatrix.rules.moves import bury, hurt
from hackmatrix.rules.planes import SIZE, Plane, row_and_col
from hackmatrix.rules.programs import CARDS, Card, Program, Rule, Situation, Whom

_Value = TypeVar("_Value")


def useful(game: Game, occupied: Occupied) -> list[Bool[Array, ""]]:
    """Whether each program would have some effect."""
    now = Situation(game, occupied)
    always = jnp.bool_(True)
    return [always if card.useful is None else card.useful(now) for card in CARDS]


def at_hand(game: Game, others: int) -> Bool[Array, "actions"]:
    """Flags the first ``others`` actions, which run no program, and affordable owned programs."""
    nothing = [0] * others
    credits = np.array([*nothing, *(card.credits for card in CARDS)], np.int32)
    energy = np.array([*nothing, *(card.energy for card in CARDS)], np.int32)
    owned = bits.flags_of((game.owned << others) | ((1 << others) - 1), credits.size)
    return owned & (game.player.credits >= credits) & (game.player.energy >= energy)


def run(game: Game, program: Int[Array, ""], draws: Draws) -> tuple[Game, Int[Array, ""]]:
    """Pays for a program and applies the effects in its row; NO_PROGRAM does nothing.

    Returns:
        The game before the enemy turn, and the number of destroyed entities to reward.
    """
    now = Situation(game, draws=draws)
    runs = [program == each for each in Program]

    def column(of: Callable[[Card], Rule[_Value] | None]) -> list[tuple[Array, _Value]]:
        """The values in a column of the table, each with a flag: whether its row's program runs."""
        rules = ((runs[each], of(each.card)) for each in Program)
        return [(flag, rule(now)) for flag, rule in rules if rule is not None]

    hit = game.entities.is_enemy & _members(game.entities, column(lambda card: card.hits))
    damage = game.player.attack
    for each in Program:
        if each.card.damage is not None:
            damage = jnp.where(runs[each], each.card.damage, damage)
    table = hurt(game.entities, hit, damage)
    for flag, fields in column(lambda card: card.entities):
        values = {name: jnp.where(flag, x, getattr(table, name)) for name, x in fields.items()}
        table = replace(table, **values)
    gone = (table.kind != FREE) & _members(table, column(lambda card: card.destroys))
    away, nearer = (
        reduce(or_, (runs[each] for each in Program if each.card.pushes == way)) for way in (1, -1)
    )
    cell, counted = _push(table, game.player.cell, gone, away, nearer)
    table, kills = bury(replace(table, cell=cell), gone, counted)

    cleared, reduced = column(lambda card: card.clears), column(lambda card: card.reduces)
    board = _on_board(game.board, game.exit, _union(cleared), _union(reduced))

    numbers = vars(game) | vars(game.player)
    for name in ("credits", "energy"):  # Index -1 (NO_PROGRAM) reads the last price, 0.
        prices = jnp.array([*(getattr(card, name) for card in CARDS), 0], jnp.int32)
        numbers[name] = numbers[name] - prices[program]
    for flag, added in column(lambda card: card.adds):
        numbers |= {name: numbers[name] + jnp.where(flag, x, 0) for name, x in added.items()}
    for flag, new in column(lambda card: card.sets):
        numbers |= {name: jnp.where(flag, x, numbers[name]) for name, x in new.items()}
    player = build(Player, **{name: numbers.pop(name) for name in vars(game.player)})
    parts = {"player": player, "entities": table, "board": board}
    return build(Game, **(numbers | parts)), kills


def _members(table: Entities, whom: Sequence[tuple[Array, Whom]]) -> Bool[Array, " slots"]:
    """The entities in those sets of ``whom`` whose flag is on; the sets hold slots or cells."""
    cells = [(flag, them) for flag, them in whom if isinstance(them, Plane)]
    slots = [them & flag for flag, them in whom if not isinstance(them, Plane)]
    return reduce(or_, [_union(cells).has(table.cell), *slots])


def _union(cells: Sequence[tuple[Array, Plane]]) -> Plane:
    """The union of the sets whose flag is on."""
    return reduce(or_, (them.where(flag) for flag, them in cells))


def _push(
    table: Entities,
    player: Int[Array, ""],
    gone: Bool[Array, " slots"],
    away: Bool[Array, ""],
    nearer: Bool[Array, ""],
) -> tuple[Int8[Array, " slots"], Bool[Array, " slots"]]:
    """Moves enemies away from the player if ``away``, toward the player if ``nearer``.

    Returns:
        The new cell of each slot; and the slots in ``gone`` that hold the first enemy or the first
        transmission on their cell.
    """
    wanted, can_go = _wanted_cells(table, player, away)
    goes = away | nearer
    # Of the enemies that want a cell, only the first in list order gets it. One search finds these
    # enemies or, where nobody moves, the first of the `gone` slots on each cell.
    members = jnp.where(goes, can_go, gone)
    first = first_on_each(members, jnp.where(goes, wanted, table.place), table.order)
    return jnp.where(goes & first, wanted, table.cell), first & gone


def _wanted_cells(
    table: Entities, player: Int[Array, ""], away: Bool[Array, ""]
) -> tuple[Int8[Array, " slots"], Bool[Array, " slots"]]:
    """For each enemy, the cell that it would move to, and whether it can move.

    Enemies move away from the player if ``away`` holds, else toward the player.
    """
    player = player.astype(jnp.int8)
    (at_row, at_col), (my_row, my_col) = row_and_col(table.cell), row_and_col(player)
    out_row, out_col = jnp.sign(at_row - my_row), jnp.sign(at_col - my_col)
    d_row = jnp.where(away, out_row, -out_row)
    d_col = jnp.where(away, out_col, -out_col)
    still = jnp.zeros_like(d_row)
    wanted, best, found = table.cell, jnp.full_like(table.cell, -1), jnp.zeros_like(table.stunned)
    for dr, dc, allowed in (
        (d_row, d_col, True),
        (d_row, still, d_row != 0),
        (still, d_col, d_col != 0),
    ):
        r, c = at_row + dr, at_col + dc
        cell = r * SIZE + c
        on_board = (r >= 0) & (r < SIZE) & (c >= 0) & (c < SIZE)
        possible = allowed & on_board & (away | (cell != player)) & table.is_enemy
        distance = jnp.abs(r - my_row) + jnp.abs(c - my_col)
        worth = jnp.where(away, distance, 2 * SIZE - distance)
        better = possible & (worth > best)
        wanted = jnp.where(better, cell, wanted)
        best = jnp.where(better, worth, best)
        found = found | possible
    return wanted, found


def _on_board(board: Board, exit: Int[Array, ""], cleared: Plane, reduced: Plane) -> Board:
    """Clears the blocks in ``cleared``; blocks in ``reduced`` spawn one transmission less."""
    cleared = cleared & board.blocks
    is_cleared, is_reduced = cleared.flags(), reduced.flags()
    spawn_count = jnp.where(is_reduced, jnp.maximum(board.spawn_count - 1, 0), board.spawn_count)
    return replace(
        board,
        data=board.data & ~cleared,
        program_blocks=board.program_blocks & ~cleared,
        question=board.question & ~cleared,
        points=jnp.where(is_cleared, jnp.int8(0), board.points),
        program=jnp.where(is_cleared, jnp.int8(NO_PROGRAM), board.program),
        spawn_count=jnp.where(is_cleared, jnp.int8(0), spawn_count),
        exit_steps=paths.exit_steps(board.blocks & ~cleared, exit),
    )

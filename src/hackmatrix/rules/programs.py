"""The 23 programs: a table of costs, when each is valid, and what each does.

Effects are written for all entities and cells at once. Most programs are one line in one of the
groups below: who is hit, who is gone, what changes for the player or on the board.
"""

from enum import IntEnum
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Int8, UInt32

from hackmatrix.rules import bits, paths
from hackmatrix.rules.batching import anywhere, join, materialize, smallest
from hackmatrix.rules.draws import Draws, Use
from hackmatrix.rules.entities import (
    DAEMON,
    MAX_ENTITIES,
    NUM_TYPES,
    VIRUS,
    Entities,
    first_on_each,
    full_hp,
    slot_set,
)
from hackmatrix.rules.game import MAX_HP, NO_PROGRAM, NUM_STAGES, Board, Game, choose, replace
from hackmatrix.rules.moves import bury, hurt
from hackmatrix.rules.planes import SIZE, Plane, column, row, row_and_col, single


class Card(NamedTuple):
    """What is printed on a program: its name, its price, and what siphoning its block brings."""

    name: str
    credits: int
    energy: int
    spawn_count: int


class Program(IntEnum):
    """A program's number, in the order of its :class:`Card`; its action is 5 more."""

    card: Card

    def __new__(cls, *printed: Any) -> "Program":
        """The next program; ``printed`` is on its card."""
        program = int.__new__(cls, len(cls.__members__))
        program._value_ = int(program)
        program.card = Card(*printed)
        return program

    PUSH = "PUSH", 0, 2, 4
    PULL = "PULL", 0, 2, 4
    CRASH = "CRASH", 3, 2, 6
    WARP = "WARP", 2, 2, 5
    POLY = "POLY", 1, 1, 3
    WAIT = "WAIT", 0, 1, 1
    DEBUG = "DEBUG", 3, 0, 4
    ROW = "ROW", 3, 1, 2
    COL = "COL", 3, 1, 2
    UNDO = "UNDO", 1, 0, 3
    STEP = "STEP", 0, 3, 4
    SIPH_PLUS = "SIPH+", 5, 0, 7
    EXCH = "EXCH", 4, 0, 3
    SHOW = "SHOW", 2, 0, 2
    RESET = "RESET", 0, 4, 2
    CALM = "CALM", 2, 4, 6
    D_BOM = "D_BOM", 3, 0, 4
    DELAY = "DELAY", 1, 2, 4
    ANTI_V = "ANTI-V", 3, 0, 4
    SCORE = "SCORE", 0, 5, 5
    REDUC = "REDUC", 2, 1, 3
    ATK_PLUS = "ATK+", 4, 4, 8
    HACK = "HACK", 2, 2, 4


CARDS = tuple(program.card for program in Program)
NUM_PROGRAMS = len(CARDS)

_EXCH_ENERGY = 4
_DELAY_TURNS = 3
_MAX_TURNS = np.iinfo(np.int16).max
_MAX_ATK_USES = 2


def owned_flags(owned: UInt32[Array, ""]) -> Bool[Array, "programs"]:
    """Which programs are owned; ``owned`` has one bit each."""
    return bits.flags_of(owned, NUM_PROGRAMS)


def useful(game: Game, enemies: Plane, transmissions: Plane) -> list[Bool[Array, ""]]:
    """Of each program, whether it would have some effect."""
    player, board, table = game.player, game.board, game.entities
    here = single(player.cell)
    any_enemy, any_transmission = enemies.any(), transmissions.any()
    reducible = (~board.siphoned & board.blocks).flags() & (board.spawn_count > 0)
    # In memory: what is fused with a reduction is computed for one game at a time.
    types = join(jnp.where(table.is_enemy, jnp.uint16(1) << table.type.astype(jnp.uint16), 0))
    found = types | (anywhere(reducible).astype(jnp.uint16) << NUM_TYPES)
    is_there = bits.flags_of(materialize(found, game.steps < 0), NUM_TYPES + 1)
    always = jnp.bool_(True)
    conditions: dict[Program, Any] = {
        Program.WAIT: always,
        Program.STEP: always,
        Program.SIPH_PLUS: always,
        Program.EXCH: always,  # its condition, credits of at least 4, is its price
        Program.PUSH: any_enemy,
        Program.PULL: any_enemy,
        Program.CRASH: (here.around() & (board.blocks | enemies | transmissions)).any(),
        Program.WARP: any_enemy | any_transmission,
        Program.POLY: any_enemy,
        Program.DEBUG: (enemies & board.blocks).any(),
        Program.ROW: (enemies & row(player.row)).any(),
        Program.COL: (enemies & column(player.col)).any(),
        Program.UNDO: game.undo_length > 0,
        Program.SHOW: ~game.show,
        Program.RESET: player.hp < MAX_HP,
        Program.CALM: ~game.calm,
        Program.D_BOM: is_there[DAEMON],
        Program.DELAY: any_transmission,
        Program.ANTI_V: is_there[VIRUS],
        Program.SCORE: game.stage < NUM_STAGES,
        Program.REDUC: is_there[NUM_TYPES],
        Program.ATK_PLUS: game.atk_uses < _MAX_ATK_USES,
        Program.HACK: board.siphoned.any(),
    }
    return [conditions[program] for program in Program]


def at_hand(game: Game, others: int) -> Bool[Array, "actions"]:
    """Which programs are owned and can be paid for; before them, ``others`` that need not be."""
    nothing = [0] * others
    credits = np.array([*nothing, *(card.credits for card in CARDS)], np.int32)
    energy = np.array([*nothing, *(card.energy for card in CARDS)], np.int32)
    owned = bits.flags_of((game.owned << others) | ((1 << others) - 1), credits.size)
    return owned & (game.player.credits >= credits) & (game.player.energy >= energy)


def run(game: Game, program: Int[Array, ""], draws: Draws) -> tuple[Game, Int[Array, ""]]:
    """What a program does, UNDO excepted; NO_PROGRAM does nothing.

    Returns:
        The game, whose turn does not end here; and how many the program destroyed that count.
    """
    table, cell = game.entities, game.player.cell
    # WARP goes to one enemy or transmission, uniformly drawn; to any slot if there is none.
    slots = slot_set(table.kind != 0)
    warped_to = slots.nth(draws.below(slots.size(), Use.WARP))
    strike = _strike(game, program, warped_to)
    table = hurt(table, strike.hit, strike.damage)
    late = table.is_transmission & (program == Program.DELAY)
    # As far as turns can be counted.
    later = jnp.minimum(table.turns, _MAX_TURNS - _DELAY_TURNS) + jnp.int16(_DELAY_TURNS)
    table = replace(table, turns=jnp.where(late, later, table.turns))
    table, counted = _regroup(table, strike.gone, cell, program, draws)
    table, kills = bury(table, strike.gone, counted)
    warp_cell = game.entities.cell[warped_to].astype(jnp.int32)
    board = _run_on_board(game.board, program, single(cell).around(), game.exit)
    game = _run_on_player(replace(game, entities=table, board=board), program)
    cell = jnp.where(program == Program.WARP, warp_cell, cell)
    return replace(game, player=replace(game.player, cell=cell)), kills


class _Strike(NamedTuple):
    """Whom an action harms."""

    hit: Bool[Array, " slots"]  # enemies that lose ``damage`` hp; survivors are stunned
    damage: Int[Array, ""]
    gone: Bool[Array, " slots"]  # whoever is destroyed whatever its hp, transmissions too


def _strike(game: Game, program: Int[Array, ""], warped_to: Int[Array, ""]) -> _Strike:
    """Whom a program harms; ``warped_to`` is the slot that WARP has drawn."""
    table, player, board = game.entities, game.player, game.board
    here = single(player.cell)

    daemons = table.is_enemy & (table.type == DAEMON)
    distance = jnp.where(daemons, paths.manhattan(table.cell.astype(jnp.int32), player.cell), 99)
    bombed = table.first(daemons & (distance == smallest(distance))) & (program == Program.D_BOM)
    bomb_cell = table.cells_of(bombed)

    struck = (
        board.blocks.where(program == Program.DEBUG)
        | row(player.row).where(program == Program.ROW)
        | column(player.col).where(program == Program.COL)
        | board.siphoned.where(program == Program.HACK)
        | bomb_cell.around()
    )
    viruses = (table.type == VIRUS) & (program == Program.ANTI_V)
    small = (program == Program.ANTI_V) | (program == Program.D_BOM)

    crashed = here.around().where(program == Program.CRASH)
    same = (table.kind == table.kind[warped_to]) & (table.cell == table.cell[warped_to])
    warped = same & (program == Program.WARP)
    return _Strike(
        hit=table.is_enemy & (struck.has(table.cell) | viruses),
        damage=jnp.where(small, 1, player.attack),
        gone=((table.kind != 0) & (crashed.has(table.cell) | warped)) | bombed,
    )


def _regroup(
    table: Entities,
    gone: Bool[Array, " slots"],
    player: Int[Array, ""],
    program: Int[Array, ""],
    draws: Draws,
) -> tuple[Entities, Bool[Array, " slots"]]:
    """The programs that set entities against each other.

    Returns:
        The entities, moved by PUSH or PULL or changed by POLY (those at 0 hp or less are still
        there); and of those that are gone, the first enemy and the first transmission of each cell.
    """
    push = program == Program.PUSH
    wanted, can_go = _wanted_cells(table, player, push)
    goes = push | (program == Program.PULL)
    # Of those that want a cell only the first in list order gets it.
    members = jnp.where(goes, can_go, gone)
    chosen = first_on_each(members, jnp.where(goes, wanted, table.place), table.order)
    moved = replace(table, cell=jnp.where(goes & chosen, wanted, table.cell))
    return choose(program == Program.POLY, _poly(table, draws), moved), chosen & gone


def _poly(table: Entities, draws: Draws) -> Entities:
    """Every enemy becomes one of the other types; damage carries over, hp beyond full does not."""
    shift = 1 + draws.below(NUM_TYPES - 1, Use.POLY, np.arange(MAX_ENTITIES)).astype(jnp.int8)
    type = (table.type + shift) & (NUM_TYPES - 1)
    damage = jnp.maximum(full_hp(table.type) - table.hp, 0)
    hp = full_hp(type) - damage
    return replace(
        table,
        type=jnp.where(table.is_enemy, type, table.type),
        hp=jnp.where(table.is_enemy, hp, table.hp),
    )


def _wanted_cells(
    table: Entities, player: Int[Array, ""], push: Bool[Array, ""]
) -> tuple[Int8[Array, " slots"], Bool[Array, " slots"]]:
    """Where PUSH (else PULL) would have each enemy go, and whether it has such a cell."""
    player = player.astype(jnp.int8)
    (at_row, at_col), (my_row, my_col) = row_and_col(table.cell), row_and_col(player)
    away_row, away_col = jnp.sign(at_row - my_row), jnp.sign(at_col - my_col)
    d_row = jnp.where(push, away_row, -away_row)
    d_col = jnp.where(push, away_col, -away_col)
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
        possible = allowed & on_board & (push | (cell != player)) & table.is_enemy
        distance = jnp.abs(r - my_row) + jnp.abs(c - my_col)
        worth = jnp.where(push, distance, 2 * SIZE - distance)
        better = possible & (worth > best)
        wanted = jnp.where(better, cell, wanted)
        best = jnp.where(better, worth, best)
        found = found | possible
    return wanted, found


def _run_on_player(game: Game, program: Int[Array, ""]) -> Game:
    """The price, and the programs that change the player or a switch."""

    def runs(which: Program) -> Bool[Array, ""]:
        return program == which

    # The price of no program, at index -1, is the last.
    credits = jnp.array([*(card.credits for card in CARDS), 0], jnp.int32)
    energy = jnp.array([*(card.energy for card in CARDS), 0], jnp.int32)
    player = game.player
    credits, energy = player.credits - credits[program], player.energy - energy[program]
    return replace(
        game,
        player=replace(
            player,
            hp=jnp.where(runs(Program.RESET), MAX_HP, player.hp),
            credits=credits,
            energy=energy + jnp.where(runs(Program.EXCH), _EXCH_ENERGY, 0),
            data_siphons=player.data_siphons + runs(Program.SIPH_PLUS),
            score=player.score + jnp.where(runs(Program.SCORE), NUM_STAGES - game.stage, 0),
            attack=player.attack + runs(Program.ATK_PLUS),
        ),
        show=game.show | runs(Program.SHOW),
        calm=game.calm | runs(Program.CALM),
        step_pending=game.step_pending | runs(Program.STEP),
        atk_uses=game.atk_uses + runs(Program.ATK_PLUS),
    )


def _run_on_board(
    board: Board, program: Int[Array, ""], around: Plane, exit: Int[Array, ""]
) -> Board:
    """CRASH and REDUC; ``around`` are the 8 cells around the player."""
    crashed = (around & board.blocks).where(program == Program.CRASH)
    reduced = (board.blocks & ~board.siphoned).where(program == Program.REDUC).flags()
    cleared = crashed.flags()
    fewer = jnp.maximum(board.spawn_count - 1, 0)
    return replace(
        board,
        data=board.data & ~crashed,
        program_blocks=board.program_blocks & ~crashed,
        question=board.question & ~crashed,
        points=jnp.where(cleared, jnp.int8(0), board.points),
        program=jnp.where(cleared, jnp.int8(NO_PROGRAM), board.program),
        spawn_count=jnp.where(cleared, jnp.int8(0), jnp.where(reduced, fewer, board.spawn_count)),
        exit_steps=paths.exit_steps(board.blocks & ~crashed, exit),
    )

"""The programs: when each program is useful, and its effect; damage and kills.

Prices and names come from :mod:`hackmatrix.rules.programs`; tests compare them with recordings of
the original game. Effects are written here independently of the fast rules, so that a comparison
with the fast rules finds errors.
"""

from collections.abc import Iterable

from hackmatrix.rules.draws import Use
from hackmatrix.rules.plain.game import (
    BOARD,
    DAEMON,
    EMPTY,
    FULL_HP,
    LAST_STAGE,
    VIRUS,
    Cell,
    Chance,
    Entity,
    Game,
    Result,
    around,
    cells_of,
    manhattan,
    on,
)
from hackmatrix.rules.programs import Program


def useful(game: Game) -> dict[Program, bool]:
    """Whether each program would have some effect, whatever its price."""
    player, enemies, transmissions = game.player, cells_of(game.enemies), game.transmissions
    blocks, types = game.blocks(), {enemy.type for enemy in game.enemies}
    siphoned = game.siphoned()
    found: dict[Program, object] = {
        Program.PUSH: enemies,
        Program.PULL: enemies,
        Program.CRASH: (blocks | enemies | cells_of(transmissions)) & set(around(player.cell)),
        Program.WARP: enemies or transmissions,
        Program.POLY: enemies,
        Program.WAIT: True,
        Program.DEBUG: enemies & blocks,
        Program.ROW: any(row == player.cell[0] for row, _ in enemies),
        Program.COL: any(col == player.cell[1] for _, col in enemies),
        Program.UNDO: game.history,
        Program.STEP: True,
        Program.SIPH_PLUS: True,
        Program.EXCH: player.credits >= 4,
        Program.SHOW: not game.show,
        Program.RESET: player.hp < 3,
        Program.CALM: not game.calm,
        Program.D_BOM: DAEMON in types,
        Program.DELAY: transmissions,
        Program.ANTI_V: VIRUS in types,
        Program.SCORE: game.stage < LAST_STAGE,
        Program.REDUC: any(game.cells[cell].spawn_count > 0 for cell in blocks - siphoned),
        Program.ATK_PLUS: game.atk_uses < 2,
        Program.HACK: siphoned,
    }
    return {program: bool(reason) for program, reason in found.items()}


def run_program(game: Game, program: Program, chance: Chance, result: Result) -> None:
    """Pays for a program and applies its effect."""
    player, enemies = game.player, game.enemies
    player.credits -= program.card.credits
    player.energy -= program.card.energy
    match program:
        case Program.PUSH | Program.PULL:
            _push_or_pull(game, program == Program.PUSH)
        case Program.CRASH:
            cells = around(player.cell)
            for cell in cells:
                if game.cells[cell].is_block:
                    game.change(cell, kind=EMPTY, points=0, program=-1, spawn_count=0)
            gone, interrupted = on(enemies, cells), on(game.transmissions, cells)
            counted = [*_firsts(gone), *_firsts(interrupted)]
            destroy(game, [*gone, *interrupted], result, counted)
        case Program.WARP:
            drawn = chance([*enemies, *game.transmissions], Use.WARP)
            gone = on(enemies if drawn in enemies else game.transmissions, [drawn.cell])
            player.cell = drawn.cell
            destroy(game, gone, result, gone[:1])
        case Program.POLY:
            for number, enemy in enumerate(enemies):
                others = [(enemy.type + more) % 4 for more in (1, 2, 3)]
                damage = max(FULL_HP[enemy.type] - enemy.hp, 0)
                enemy.type = chance(others, Use.POLY, number)
                enemy.hp = FULL_HP[enemy.type] - damage
            destroy(game, [enemy for enemy in enemies if enemy.hp <= 0], result)
        case Program.WAIT:
            pass
        case Program.DEBUG:
            hit(game, on(enemies, game.blocks()), player.attack, result)
        case Program.ROW:
            row = [enemy for enemy in enemies if enemy.cell[0] == player.cell[0]]
            hit(game, row, player.attack, result)
        case Program.COL:
            column = [enemy for enemy in enemies if enemy.cell[1] == player.cell[1]]
            hit(game, column, player.attack, result)
        case Program.UNDO:
            old = game.history.pop()
            game.player, game.turn, game.owned = old.player, old.turn, old.owned
            game.show, game.calm, game.atk_uses = old.show, old.calm, old.atk_uses
            game.enemies, game.transmissions, game.cells = old.enemies, old.transmissions, old.cells
        case Program.STEP:
            game.step = 1
        case Program.SIPH_PLUS:
            player.data_siphons += 1
        case Program.EXCH:
            player.energy += 4
        case Program.SHOW:
            game.show = 1
        case Program.RESET:
            result.wasted_reset = player.hp == 2
            player.hp = 3
        case Program.CALM:
            game.calm = 1
        case Program.D_BOM:
            daemons = [enemy for enemy in enemies if enemy.type == DAEMON]
            nearest = min(daemons, key=lambda enemy: manhattan(enemy.cell, player.cell))
            destroy(game, [nearest], result)
            hit(game, on(game.enemies, around(nearest.cell)), 1, result)
        case Program.DELAY:
            for transmission in game.transmissions:
                transmission.turns += 3
        case Program.ANTI_V:
            hit(game, [enemy for enemy in enemies if enemy.type == VIRUS], 1, result)
        case Program.SCORE:
            player.score += LAST_STAGE - game.stage
        case Program.REDUC:
            for cell in game.blocks() - game.siphoned():
                game.change(cell, spawn_count=max(game.cells[cell].spawn_count - 1, 0))
        case Program.ATK_PLUS:
            player.attack += 1
            game.atk_uses += 1
        case Program.HACK:
            hit(game, on(enemies, game.siphoned()), player.attack, result)


def _firsts(entities: list[Entity]) -> list[Entity]:
    """The first entity in list order on each cell."""
    return list({entity.cell: entity for entity in reversed(entities)}.values())


def _push_or_pull(game: Game, push: bool) -> None:
    """Moves enemies away from the player if ``push``, else toward the player.

    Of the enemies that want the same cell, the first in ``game.enemies`` gets it.
    """
    wanted = [_wanted(enemy.cell, game.player.cell, push) for enemy in game.enemies]
    taken: set[Cell] = set()
    for enemy, cell in zip(game.enemies, wanted, strict=True):
        if cell is not None and cell not in taken:
            enemy.cell = cell
            taken.add(cell)


def _wanted(cell: Cell, player: Cell, push: bool) -> Cell | None:
    row, col = cell
    sign = 1 if push else -1
    dr, dc = (sign * ((a > b) - (a < b)) for a, b in zip(cell, player, strict=True))
    candidates = [(row + dr, col + dc)]
    candidates += [(row + dr, col)] if dr else []
    candidates += [(row, col + dc)] if dc else []
    candidates = [c for c in candidates if c in BOARD and (push or c != player)]
    return min(candidates, key=lambda c: -sign * manhattan(c, player), default=None)


def hit(game: Game, enemies: list[Entity], damage: int, result: Result) -> None:
    """Takes hp from enemies; survivors are stunned, others destroyed."""
    for enemy in enemies:
        enemy.hp, enemy.stunned = max(enemy.hp - damage, 0), 1
    destroy(game, [enemy for enemy in enemies if enemy.hp == 0], result)


def destroy(
    game: Game, gone: list[Entity], result: Result, counted: Iterable[Entity] | None = None
) -> None:
    """Removes the entities in ``gone``.

    Those in ``counted`` (by default, all of them) are kills, unless the schedule brought them.
    """
    result.kills += sum(not entity.from_task for entity in (gone if counted is None else counted))
    game.enemies = [enemy for enemy in game.enemies if enemy not in gone]
    game.transmissions = [each for each in game.transmissions if each not in gone]

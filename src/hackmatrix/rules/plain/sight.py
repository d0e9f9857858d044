"""What the player sees."""

from typing import Any

from hackmatrix.rules.plain.game import CRYPTOG, EXIT, PICKUP, Cell, Game, on


def observe(game: Game) -> list[float]:
    """The flat observation: the player, which programs are owned, and 42 numbers for each cell."""
    player = game.player
    row, col = player.cell
    seen = [
        *(row / 5, col / 5, player.hp / 3),
        *(min(player.credits / 50, 1), min(player.energy / 50, 1)),
        *((game.stage - 1) / 7, player.data_siphons / 10, (player.attack - 1) / 2),
        *(game.show, game.calm),
        *(program in game.owned for program in range(23)),
    ]
    cells = (number for cell in game.cells for number in _cell(game, cell))
    return [float(number) for number in (*seen, *cells)]


def _cell(game: Game, cell: Cell) -> list[Any]:
    content = game.cells[cell]
    is_known = content.is_block and not content.is_question
    points, program, spawn_count = (
        (content.points, content.program, content.spawn_count) if is_known else (0, -1, 0)
    )
    resources_seen = content.siphoned or not content.is_block
    transmissions = on(game.transmissions, [cell])
    return [
        *_enemy(game, cell),
        *(is_known and content.holds_data, is_known and content.holds_program),
        *(content.is_question, points / 9, content.is_block and content.siphoned),
        *(program == number for number in range(23)),
        *(spawn_count / 9, min(transmissions[0].turns / 4, 1) if transmissions else 0),
        *(content.credits / 3 * resources_seen, content.energy / 3 * resources_seen),
        *(content.kind == PICKUP, content.kind == EXIT, content.center),
    ]


def _enemy(game: Game, cell: Cell) -> list[Any]:
    """The first enemy on a cell: type, hp, stunned, from a siphoned block; zeros if not visible."""
    in_line = cell[0] == game.player.cell[0] or cell[1] == game.player.cell[1]
    for enemy in on(game.enemies, [cell])[:1]:
        if enemy.type != CRYPTOG or game.show or in_line:
            types = [enemy.type == type for type in range(4)]
            return [*types, enemy.hp / 3, enemy.stunned, enemy.from_siphon]
    return [0] * 7

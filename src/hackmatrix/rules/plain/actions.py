"""The player's actions and their results."""

from copy import copy

from hackmatrix.rules.plain.game import (
    BOARD,
    DATA,
    DIRECTIONS,
    EMPTY,
    LAST_STAGE,
    PICKUP,
    PROGRAM,
    Cell,
    Chance,
    Game,
    Player,
    Result,
    cells_of,
    distances,
    neighbors,
    on,
    ray,
)
from hackmatrix.rules.plain.programs import destroy, hit, run_program, useful
from hackmatrix.rules.plain.turns import enemy_turn, enter_stage
from hackmatrix.rules.programs import Program
from hackmatrix.rules.rewards import COMPONENTS, STAGE_REWARDS

SIPHON, FIRST_PROGRAM = 4, 5  # actions


def legal(game: Game) -> set[int]:
    """The valid actions."""
    player, walls, enemies = game.player, game.blocks(), cells_of(game.enemies)
    row, col = player.cell
    allowed = {
        action
        for action, (dr, dc) in enumerate(DIRECTIONS)
        if (there := (row + dr, col + dc)) in BOARD and (there not in walls or there in enemies)
    }
    if player.data_siphons > 0:
        allowed.add(SIPHON)
    is_useful = useful(game)
    for program in Program:
        card = program.card
        affordable = player.credits >= card.credits and player.energy >= card.energy
        if program in game.owned and affordable and is_useful[program]:
            allowed.add(FIRST_PROGRAM + program)
    return allowed


def step(game: Game, action: int, chance: Chance) -> Result:
    """Plays an action and, if it ends the turn, the enemy turn."""
    if action not in legal(game):
        return Result(invalid_action=True, reward=dict.fromkeys(COMPONENTS, 0.0))
    result, player = Result(), game.player
    before, stage, distance = copy(player), game.stage, exit_distance(game)
    program = Program(action - FIRST_PROGRAM) if action >= FIRST_PROGRAM else None
    if action < SIPHON:
        _move(game, DIRECTIONS[action], result)
    elif action == SIPHON:
        result.lost_yield = lost_yield(game)
        _siphon(game)
    elif program is not None:
        run_program(game, program, chance, result)
    player = game.player  # UNDO has replaced the player.
    arrives = result.walked or program is Program.WARP
    if arrives and player.cell == game.exit:
        _complete_stage(game, chance, result)
    elif (action <= SIPHON or program is Program.WAIT) and enemy_turn(game, chance):
        result.died = player.hp == 0
    result.reward = _reward(game, before, stage, distance, result)
    return result


def _move(game: Game, direction: Cell, result: Result) -> None:
    player = game.player
    way = ray(player.cell, direction)
    for cell in way:
        if interrupted := on(game.transmissions, [cell]):
            return destroy(game, interrupted[:1], result)
        if attacked := on(game.enemies, [cell]):
            return hit(game, attacked[:1], player.attack, result)
        if game.cells[cell].is_block:
            break
    player.cell, result.walked = way[0], True
    if game.cells[player.cell].kind == PICKUP:
        player.data_siphons += 1
        game.change(player.cell, kind=EMPTY)
        result.picked_up = True
    return None


def _siphon(game: Game) -> None:
    player = game.player
    player.data_siphons -= 1
    game.change(player.cell, center=1)
    for cell in _siphon_cells(player.cell):
        content = game.cells[cell]
        if content.siphoned:
            continue
        if content.is_block:
            player.score += content.points
            if content.holds_program:
                game.owned.add(content.program)
            game.pending += content.spawn_count
            game.change(cell, kind=DATA if content.holds_data else PROGRAM, spawn_count=0)
        else:
            player.credits += content.credits
            player.energy += content.energy
            game.change(cell, credits=0, energy=0)
        game.change(cell, siphoned=1)
    game.interval = max(4, game.interval - 1)
    game.next_task += 5


def _complete_stage(game: Game, chance: Chance, result: Result) -> None:
    game.player.hp = min(game.player.hp + 1, 3)
    result.completed, result.won = True, game.stage == LAST_STAGE
    if not result.won:
        enter_stage(game, game.stage + 1, chance)


# The reward


def exit_distance(game: Game) -> int:
    """The length of a shortest walk to the exit that enters no block; 0 without such a walk."""
    free = set(BOARD) - game.blocks() | {game.player.cell}
    return distances(game.exit, free).get(game.player.cell, 0)


def _reward(
    game: Game, before: Player, stage: int, distance: int, result: Result
) -> dict[str, float]:
    """The reward's components; ``before``, ``stage``, ``distance`` are from before the action."""
    player = game.player
    lost = before.hp - player.hp
    resources = player.credits + player.energy
    closer = distance - (0 if result.completed else exit_distance(game))
    killers = [enemy for enemy in on(game.enemies, neighbors(player.cell)) if enemy.from_siphon]
    return {
        "step_penalty": -0.01,
        "stage_completion": STAGE_REWARDS[stage - 1] * result.completed,
        "score_gain": 0.5 * (player.score - before.score),
        "kills": 0.3 * result.kills,
        "data_siphon": 1.0 * result.picked_up,
        "distance_shaping": 0.05 * max(closer, 0) * (not result.died),
        "victory": (500.0 + 100.0 * player.score) * result.won,
        "death_penalty": -0.5 * sum(STAGE_REWARDS[: stage - 1]) * result.died,
        "resource_gain": 0.05 * (resources - before.credits - before.energy),
        "resource_holding": 0.01 * resources * result.completed,
        "damage_penalty": -1.0 * max(lost, 0),
        "hp_recovery": 1.0 * max(-lost, 0),
        "siphon_quality": -0.5 * 0.05 * result.lost_yield,
        "program_waste": -0.3 * result.wasted_reset,
        "siphon_death_penalty": -10.0 * (result.died and bool(killers)),
    }


def lost_yield(game: Game) -> int:
    """The additional credits and energy from siphoning at a strictly better place."""
    here, blocks = game.player.cell, game.blocks()
    credits, energy, points, programs = _yield(game, here)
    mine = set(_siphon_cells(here)) & blocks - game.siphoned()
    covered = mine if points or programs else set[Cell]()
    better = [
        (c, e)
        for cell in BOARD
        if cell not in blocks and covered <= set(_siphon_cells(cell))
        for c, e, *same in [_yield(game, cell)]
        if same == [points, programs] and c >= credits and e >= energy and c + e > credits + energy
    ]
    return sum(max(kind) for kind in zip(*better, strict=True)) - (
        credits + energy if better else 0
    )


def _siphon_cells(cell: Cell) -> list[Cell]:
    return [cell, *neighbors(cell)]


def _yield(game: Game, cell: Cell) -> tuple[int, int, list[int], set[int]]:
    """The yield of siphoning from a cell: credits, energy, data points and new programs."""
    if game.cells[cell].is_block:
        return 0, 0, [], set()
    fresh = [held for c in _siphon_cells(cell) if not (held := game.cells[c]).siphoned]
    return (
        sum(held.credits for held in fresh if not held.is_block),
        sum(held.energy for held in fresh if not held.is_block),
        sorted(held.points for held in fresh if held.holds_data),
        {held.program for held in fresh if held.holds_program} - game.owned,
    )

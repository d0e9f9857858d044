"""The enemy turn, and setting up a stage."""

from itertools import count

from hackmatrix.rules.draws import Use
from hackmatrix.rules.plain.game import (
    BOARD,
    CORNERS,
    DATA,
    DIRECTIONS,
    EXIT,
    FULL_HP,
    GLITCH,
    PICKUP,
    PROGRAM,
    QUESTION_DATA,
    TYPES,
    VIRUS,
    Cell,
    Chance,
    Content,
    Entity,
    Game,
    Player,
    cells_of,
    distances,
    manhattan,
    neighbors,
    ray,
)
from hackmatrix.rules.programs import Program

_BONUSES = ((10, 0, 0), (0, 11, 0), (0, 0, 1))  # credits, energy, data siphons
_AMOUNTS = (*[3] * 2, *[2] * 9, *[1] * 9)
_PATIENCE = 1024  # layouts to sample before trying one block fewer


def enemy_turn(game: Game, chance: Chance) -> bool:
    """Plays the enemy turn; returns False if STEP prevents it."""
    if game.step:
        game.step = 0
        return False
    game.turn += 1
    _arrive(game)
    _act(game, chance)
    born = count()
    if not game.calm and game.turn >= game.next_task:
        spawn(game, chance, next(born), from_task=1)
        game.next_task = game.turn + game.interval
    for _ in range(game.pending):
        spawn(game, chance, next(born), from_siphon=1)
    game.pending = 0
    for enemy in game.enemies:
        enemy.disabled, enemy.stunned = max(enemy.disabled - 1, 0), 0
    game.history = [*game.history, game.snapshot()][-game.undo_depth :]
    return True


def _arrive(game: Game) -> None:
    for each in game.transmissions:
        if each.turns <= 1:
            each.turns, each.hp, each.disabled = 0, FULL_HP[each.type], 1
            game.enemies.append(each)
        else:
            each.turns -= 1
    game.transmissions = [each for each in game.transmissions if each.turns > 0]


def _act(game: Game, chance: Chance) -> None:
    """Enemies attack or move in random order; then viruses that have not attacked act again."""
    player = game.player
    awake = [enemy for enemy in game.enemies if not enemy.disabled and not enemy.stunned]
    attacked: list[Entity] = []
    for second in (False, True):
        waiting = [e for e in awake if not second or (e.type == VIRUS and e not in attacked)]
        while waiting:
            enemy = chance(waiting, Use.ORDER)
            waiting.remove(enemy)
            if enemy.cell in neighbors(player.cell):
                player.hp = max(player.hp - 1, 0)
                attacked.append(enemy)
            else:
                others = cells_of(e for e in game.enemies if e is not enemy)
                occupied = others | cells_of(game.transmissions)
                enemy.cell = destination(
                    enemy.type, enemy.cell, player.cell, game.blocks(), occupied
                )


def destination(type: int, cell: Cell, player: Cell, walls: set[Cell], occupied: set[Cell]) -> Cell:
    """The cell that a non-attacking enemy moves to; ``occupied`` has all other entities' cells."""
    open_cells = set(BOARD) if type == GLITCH else set(BOARD) - walls
    if cell != player and player in open_cells:
        step = _first_step(cell, player, (open_cells - occupied) | {player})
        if step is not None:
            return step
        step = _first_step(cell, player, open_cells)
        if step is not None and step not in occupied:
            return step
    options = [n for n in neighbors(cell) if n in open_cells and n not in occupied]
    return min(options, key=lambda n: manhattan(n, player), default=cell)


def _first_step(cell: Cell, player: Cell, free: set[Cell]) -> Cell | None:
    """The first step of a shortest path to the player over free cells; None without a path."""
    far = distances(player, free)
    reachable = [n for n in neighbors(cell) if n in far]
    return min(reachable, key=lambda n: far[n], default=None)  # min takes the first of equals.


def spawn(
    game: Game, chance: Chance, number: int, from_siphon: int = 0, from_task: int = 0
) -> None:
    """Spawns a transmission on an empty cell, if possible out of the player's line of fire."""
    player, solid = game.player.cell, game.blocks() | cells_of(game.enemies)
    taken = solid | cells_of(game.transmissions) | {player}
    in_fire: set[Cell] = set()
    for direction in DIRECTIONS:
        for cell in ray(player, direction):
            in_fire.add(cell)
            if cell in solid:
                break
    empty = [cell for cell in BOARD if cell not in taken]
    cells = [cell for cell in empty if cell not in in_fire] or empty
    if cells:
        cell, type = chance(cells, Use.SPAWN_CELL, number), chance(TYPES, Use.SPAWN_TYPE, number)
        origin = {"from_siphon": from_siphon, "from_task": from_task}
        game.transmissions.append(Entity(type, cell, turns=1, **origin))


# Stages


def new_game(chance: Chance) -> Game:
    """Begins a new game, in its first stage."""
    cell = chance(CORNERS, Use.CORNER)
    credits, energy, data_siphons = chance(_BONUSES, Use.BONUS)
    game = Game(Player(cell, 3, credits, energy, data_siphons))
    enter_stage(game, 1, chance)
    return game


def enter_stage(game: Game, stage: int, chance: Chance) -> None:
    """Sets up a stage around the player and the surviving enemies and transmissions."""
    game.stage, game.history = stage, []
    game.turn = game.show = game.calm = game.step = game.atk_uses = 0
    game.interval = game.next_task = 13 - stage
    corners = [corner for corner in CORNERS if corner != game.player.cell]
    game.exit = chance(corners, Use.EXIT)
    game.cells = dict.fromkeys(BOARD, Content())
    for corner in corners:
        game.change(corner, kind=EXIT if corner == game.exit else PICKUP)
    left = list(Program)
    for cell in _blocks(game, chance):
        game.cells[cell] = _block(_number(cell), left, chance)
    for cell, content in game.cells.items():
        if content.kind != EXIT and not content.is_block:
            resource = chance(("credits", "energy"), Use.RESOURCE_KIND, _number(cell))
            game.change(cell, **{resource: chance(_AMOUNTS, Use.AMOUNT, _number(cell))})
    for number in range(stage):
        spawn(game, chance, number)


def _number(cell: Cell) -> int:
    return 6 * cell[0] + cell[1]


def _blocks(game: Game, chance: Chance) -> list[Cell]:
    """Samples whole layouts until one is valid, and returns the cells of its blocks."""
    taken = {*CORNERS, *cells_of(game.enemies), *cells_of(game.transmissions)}
    room = [cell for cell in BOARD if cell not in taken]
    number = min(chance(range(5, 12), Use.BLOCK_COUNT), len(room))
    for layout in count():
        left = list(room)
        for block in range(number):
            left.remove(chance(left, Use.BLOCK_CELL, 11 * layout + block))
        blocks = [cell for cell in room if cell not in left]
        if is_valid_layout(set(blocks), game.exit):
            return blocks
        number -= (layout + 1) % _PATIENCE == 0
    raise AssertionError


def is_valid_layout(blocks: set[Cell], exit: Cell) -> bool:
    """Whether all free cells are connected without passing the exit, and no block is walled in.

    The original game searches from cell (0, 0), so an exit there does not block the search.
    """
    ground = set(BOARD) - blocks
    reached = set(distances((0, 0), ground if exit == (0, 0) else ground - {exit}))
    reached |= {exit} & {n for cell in reached for n in neighbors(cell)}
    return reached == ground and all(ground & set(neighbors(block)) for block in blocks)


def _block(number: int, left: list[Program], chance: Chance) -> Content:
    """Samples a data block, or a program block, whose program it takes from ``left``."""
    is_program = chance((True, False), Use.BLOCK_KIND, number)
    hidden = chance((True, *[False] * 9), Use.BLOCK_HIDDEN, number) * (QUESTION_DATA - DATA)
    if is_program:
        program = chance(left, Use.PROGRAM, len(Program) - len(left))
        left.remove(program)
        return Content(PROGRAM + hidden, 0, program, program.card.spawn_count)
    points = chance(range(1, 10), Use.POINTS, number)
    return Content(DATA + hidden, points, spawn_count=points)

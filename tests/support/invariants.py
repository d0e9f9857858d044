"""What must hold after every step, whatever happens: one flag for each law, on where it is broken.

Everything that a step can do to the player, the entities and the schedule is predicted here anew
from the position before it.
"""

import jax.numpy as jnp

from hackmatrix.rules.entities import ENEMY, FREE, MAX_ENTITIES, TRANSMISSION
from hackmatrix.rules.programs import CARDS, NUM_PROGRAMS, Program
from hackmatrix.rules.rewards import COMPONENTS

FULL_HP = jnp.array([2, 3, 2, 2])
CELLS = jnp.arange(36)
SLOTS = jnp.arange(MAX_ENTITIES)
DIRECTIONS = jnp.array([[1, 0], [-1, 0], [0, -1], [0, 1]])


def enemies_act(before, after, action, timestep):
    ends_turn = (action <= 4) | (action == 5 + Program.WAIT)
    return ends_turn & ~before.step_pending & ~timestep.info["stage_completed"]


def laws(before, after, action, timestep):
    """Which laws a step of a valid action breaks."""
    info = timestep.info
    acting = enemies_act(before, after, action, timestep)
    return {
        **_ranges(before, after, acting, info),
        **_accounts(before, after, action, acting, info),
        **_player(before, after, action, info),
        **_schedule(before, after, action, acting, info),
        **_timestep(after, timestep),
    }


def _one_each(cells, members):
    return jnp.sum((cells[:, None] == CELLS) & members[:, None], axis=0)


def _ranges(before, after, enemies_act, info):
    table, player, board = after.entities, after.player, after.board
    enemy, transmission = table.kind == ENEMY, table.kind == TRANSMISSION
    alive = enemy | transmission
    blocks = board.blocks.flags()
    cell = jnp.clip(table.cell, 0, 35)
    types = (table.type >= 0) & (table.type < 4)
    hp = (table.hp >= 1) & (table.hp <= FULL_HP[jnp.clip(table.type, 0, 3)])
    goods = jnp.stack([player.credits, player.energy, player.data_siphons, player.score])
    things = (board.data, board.program_blocks, board.pickups, board.exits)
    per_cell = sum(plane.flags().astype(jnp.int32) for plane in things)
    return {
        "kinds of slots": jnp.any((table.kind < 0) | (table.kind > 2)),
        "cells of entities": jnp.any(alive & ((table.cell < 0) | (table.cell > 35))),
        "types": jnp.any(alive & ~types),
        "hp of enemies": jnp.any(enemy & ~hp),
        "nobody is disabled between turns": jnp.any(enemy & (table.disabled != 0)),
        "nobody is stunned after the enemy turn": enemies_act & jnp.any(enemy & table.stunned),
        "turns of transmissions": jnp.any(transmission & (table.turns < 1)),
        "one transmission a cell": jnp.any(_one_each(table.cell, transmission) > 1),
        "no transmission on a block": jnp.any(transmission & blocks[cell]),
        "one thing a cell": jnp.any(per_cell > 1),
        "question blocks are blocks": jnp.any(board.question.flags() & ~blocks),
        "list order is strict": _order_doubled(table),
        "player": (player.cell < 0) | (player.cell > 35) | (player.hp < 0) | (player.hp > 3),
        "death": info["died"] != (player.hp == 0),
        "goods": jnp.any(goods < 0) | (player.attack < 1),
        "player on a block": blocks[player.cell] & ~_may_stand_on_block(before, after),
        "exit": ~jnp.isin(after.exit, jnp.array([0, 5, 30, 35])) | ~board.exits.has(after.exit),
    }


def _order_doubled(table):
    same = (table.order[:, None] == table.order) & (table.kind[:, None] == table.kind)
    return jnp.any(same & (table.kind != FREE) & (SLOTS[:, None] < SLOTS))


def _may_stand_on_block(before, after):
    """WARP leads onto the block on which a glitch stands; UNDO may bring it back there."""
    owned = before.owned | after.owned
    return (owned >> jnp.uint32(Program.WARP)) & 1 != 0


def _census(table, members):
    """How many of each sort, by type and origin, which no one ever changes but POLY the type."""
    sort = table.type * 4 + table.from_siphon * 2 + table.from_task
    return jnp.sum((sort[:, None] == jnp.arange(16)) & members[:, None], axis=0)


def _struck(before, action):
    """Who is destroyed, who is hit, and by how much."""
    table, player = before.entities, before.player
    enemy, transmission = table.kind == ENEMY, table.kind == TRANSMISSION
    row, col = table.cell // 6, table.cell % 6
    blocks, siphoned = before.board.blocks.flags(), before.board.siphoned.flags()
    cell = jnp.clip(table.cell, 0, 35)

    def runs(program):
        return action == 5 + program

    # A move's target: the nearest cell with anyone, unless a block without anyone comes before.
    d_row, d_col = DIRECTIONS[jnp.clip(action, 0, 3)]
    ahead = jnp.where(d_row != 0, (row - player.row) * d_row, (col - player.col) * d_col)
    ahead = jnp.where(jnp.where(d_row != 0, col == player.col, row == player.row), ahead, 0)
    ahead = jnp.where((enemy | transmission) & (ahead > 0), ahead, 99)
    nearest = jnp.min(ahead)
    steps = jnp.arange(1, 6)
    way_row, way_col = player.row + steps * d_row, player.col + steps * d_col
    on_board = (way_row >= 0) & (way_row < 6) & (way_col >= 0) & (way_col < 6)
    way = jnp.clip(way_row * 6 + way_col, 0, 35)
    walled = jnp.any(on_board & (steps < nearest) & blocks[way])
    at_target = (ahead == nearest) & (nearest < 99) & ~walled & (action < 4)
    target_transmission = at_target & transmission
    first = jnp.argmin(jnp.where(at_target & enemy, table.order, jnp.uint32(0xFFFFFFFF)))
    target_enemy = at_target & enemy & (first == SLOTS) & ~jnp.any(target_transmission)

    far = jnp.abs(row - player.row) + jnp.abs(col - player.col)
    beside = jnp.maximum(jnp.abs(row - player.row), jnp.abs(col - player.col)) == 1
    daemon = enemy & (table.type == 1)
    near = daemon & (far == jnp.min(jnp.where(daemon, far, 99)))
    bombed = near & (jnp.argmin(jnp.where(near, table.order, jnp.uint32(0xFFFFFFFF))) == SLOTS)
    bombed = bombed & runs(Program.D_BOM)
    bomb = jnp.sum(jnp.where(bombed, table.cell, 0))
    near_bomb = jnp.maximum(jnp.abs(row - bomb // 6), jnp.abs(col - bomb % 6)) == 1
    hit = target_enemy | enemy & (
        (runs(Program.DEBUG) & blocks[cell])
        | (runs(Program.ROW) & (row == player.row))
        | (runs(Program.COL) & (col == player.col))
        | (runs(Program.HACK) & siphoned[cell])
        | (runs(Program.ANTI_V) & (table.type == 0))
        | (runs(Program.D_BOM) & near_bomb)
    )
    weak = runs(Program.ANTI_V) | runs(Program.D_BOM)
    damage = jnp.where(hit, jnp.where(weak, 1, player.attack), 0)
    polished = runs(Program.POLY) & enemy & (FULL_HP[jnp.clip(table.type, 0, 3)] - table.hp >= 2)
    gone = (
        target_transmission
        | bombed
        | polished
        | (runs(Program.CRASH) & beside & (enemy | transmission))
        | (hit & (table.hp <= damage))
    )
    return gone, damage, jnp.any(at_target)


def _accounts(before, after, action, enemies_act, info):
    """No entity is lost or doubled, none heals, none changes its origin."""
    old, new = before.entities, after.entities
    gone, damage, _ = _struck(before, action)
    warps = action == 5 + Program.WARP
    undone = action == 5 + Program.UNDO
    poly = action == 5 + Program.POLY
    # WARP draws whom: of one kind all on the cell to which it has led.
    there = (old.kind != FREE) & (old.cell == after.player.cell) & warps
    enemies_gone = jnp.any(there & (old.kind == ENEMY)) & ~jnp.any(
        (new.kind == ENEMY) & (new.cell == after.player.cell)
    )
    gone = gone | (there & ((old.kind == ENEMY) == enemies_gone))
    kept = (old.kind != FREE) & ~gone
    census = _census(new, new.kind != FREE) - _census(old, kept)
    born = jnp.sum(census)

    due_at = before.next_task + 5 * (action == 4)
    scheduled = enemies_act & ~before.calm & (before.turn + 1 >= due_at)
    pending = jnp.where(enemies_act, before.pending + _siphoned_spawns(before, action), 0)
    next_stage = info["stage_completed"] & ~info["won"]
    due = jnp.where(next_stage, after.stage, scheduled + pending)
    taken = after.board.blocks.flags() | (_one_each(new.cell, new.kind != FREE) > 0)
    room = ~jnp.all(taken.at[after.player.cell].set(True)) & jnp.any(new.kind == FREE)
    by_origin = jnp.sum(census.reshape(4, 4), axis=0)  # plain, task, siphon, both
    from_task = scheduled & (born > 0)

    full = FULL_HP[jnp.clip(old.type, 0, 3)]
    old_wounds = jnp.sum(jnp.where(kept & (old.kind == ENEMY), full - old.hp + damage, 0))
    wounds = FULL_HP[jnp.clip(new.type, 0, 3)] - new.hp
    new_wounds = jnp.sum(jnp.where(new.kind == ENEMY, wounds, 0))
    enemies_before = jnp.sum(kept & (old.kind == ENEMY))
    arrived = jnp.sum(kept & (old.kind == TRANSMISSION) & (old.turns <= 1) & enemies_act)
    return {
        "entities born": ~undone & ((born > due) | (born < 0) | (room & (born != due))),
        "entities lost": ~undone & ~poly & jnp.any(census < 0),
        "entities change type by poly only": poly & jnp.any(by_origin != 0),
        "origin of the born": ~undone
        & ~poly
        & (
            (by_origin[1] != from_task)
            | (by_origin[0] != jnp.where(next_stage, born, 0))
            | (by_origin[3] != 0)
        ),
        "nobody heals": ~undone & (old_wounds != new_wounds),
        "arrivals": ~undone & (jnp.sum(new.kind == ENEMY) != enemies_before + arrived),
    }


def _siphoned_spawns(before, action):
    return jnp.where(
        action == 4, jnp.sum(jnp.where(_fresh(before), before.board.spawn_count, 0)), 0
    )


def _fresh(before):
    """The cells that a siphon would take."""
    player = before.player
    far = jnp.abs(CELLS // 6 - player.row) + jnp.abs(CELLS % 6 - player.col)
    return (far <= 1) & ~before.board.siphoned.flags()


def _player(before, after, action, info):
    """Credits, energy, siphons, score, attack, hp and cell are what the action makes of them."""
    old, new = before.player, after.player
    program = jnp.where(action >= 5, action - 5, NUM_PROGRAMS)
    costs = jnp.array([*(card[1:3] for card in CARDS), (0, 0)])[program]
    siphons, undone = action == 4, action == 5 + Program.UNDO
    blocks, fresh = before.board.blocks.flags(), _fresh(before) & siphons
    ground = fresh & ~blocks
    _, _, attacks = _struck(before, action)
    walks = (action < 4) & ~attacks
    d_row, d_col = DIRECTIONS[jnp.clip(action, 0, 3)]
    walked = old.cell + jnp.where(walks, 6 * d_row + d_col, 0)
    picked_up = walks & before.board.pickups.has(walked)

    def runs(which):
        return action == 5 + which

    credits = old.credits - costs[0] + jnp.sum(jnp.where(ground, before.board.credits, 0))
    energy = old.energy - costs[1] + jnp.sum(jnp.where(ground, before.board.energy, 0))
    energy = energy + 4 * runs(Program.EXCH)
    data = old.data_siphons - siphons + runs(Program.SIPH_PLUS) + picked_up
    points = jnp.sum(jnp.where(fresh, before.board.points, 0))
    score = old.score + points + jnp.where(runs(Program.SCORE), 8 - before.stage, 0)
    taken = jnp.where(fresh & (before.board.program >= 0), before.board.program, 31)
    found = jnp.any(taken[:, None] == jnp.arange(NUM_PROGRAMS), axis=0)
    bits = jnp.sum(jnp.where(found, 1 << jnp.arange(NUM_PROGRAMS), 0)).astype(jnp.uint32)

    # Only who stands next to the player at the end of the turn can have attacked it.
    table = after.entities
    row, col = table.cell // 6, table.cell % 6
    beside = (jnp.abs(row - new.row) + jnp.abs(col - new.col)) == 1
    attackers = jnp.sum(beside & (table.kind == ENEMY))
    start = jnp.where(runs(Program.RESET), 3, old.hp)
    ends_turn = (action <= 4) | runs(Program.WAIT)
    least = jnp.where(ends_turn & ~before.step_pending, jnp.maximum(start - attackers, 0), start)
    completed = info["stage_completed"]
    hp = jnp.where(
        completed, new.hp == jnp.minimum(old.hp + 1, 3), (new.hp >= least) & (new.hp <= start)
    )
    broken = {
        "credits": new.credits != credits,
        "energy": new.energy != energy,
        "data siphons": new.data_siphons != data,
        "score": new.score != score,
        "attack": new.attack != old.attack + runs(Program.ATK_PLUS),
        "owned": after.owned != (before.owned | bits),
        "hp": ~hp,
        "place": ~runs(Program.WARP) & (new.cell != walked),
        "completion": ~completed & (new.cell == before.exit) & (old.cell != before.exit),
    }
    return {name: flag & ~undone for name, flag in broken.items()}


def _schedule(before, after, action, enemies_act, info):
    """Turn, interval, next scheduled spawn, pending, and the switches."""
    siphons, undone = action == 4, action == 5 + Program.UNDO
    next_stage = info["stage_completed"] & ~info["won"]
    turn = before.turn + enemies_act
    interval = jnp.where(siphons, jnp.maximum(before.interval - 1, 4), before.interval)
    due = before.next_task + 5 * siphons
    due = jnp.where(enemies_act & ~before.calm & (turn >= due), turn + interval, due)
    fresh = jnp.where(enemies_act, 0, before.pending + _siphoned_spawns(before, action))
    ends_turn = ((action <= 4) | (action == 5 + Program.WAIT)) & ~info["stage_completed"]
    step = (before.step_pending & ~ends_turn) | (action == 5 + Program.STEP)
    uses = before.atk_uses + (action == 5 + Program.ATK_PLUS)
    show = before.show | (action == 5 + Program.SHOW)
    calm = before.calm | (action == 5 + Program.CALM)

    def differs(name, here, in_next_stage=0, restored=False):
        wanted = jnp.where(next_stage, in_next_stage, here)
        return (getattr(after, name) != wanted) & ~(undone & restored)

    return {
        "stage": after.stage != before.stage + next_stage,
        "turn": differs("turn", turn, restored=True),
        "interval": differs("interval", interval, 13 - after.stage),
        "next task": differs("next_task", due, 13 - after.stage),
        "pending": differs("pending", fresh, before.pending),
        "step": differs("step_pending", step),
        "uses": differs("atk_uses", uses, restored=True),
        "show": differs("show", show, restored=True),
        "calm": differs("calm", calm, restored=True),
    }


def _timestep(after, timestep):
    info = timestep.info
    components = jnp.stack([info[f"reward/{name}"] for name in COMPONENTS])
    finite = jnp.isfinite(timestep.reward) & jnp.all(jnp.isfinite(components))
    seen = timestep.observation
    close = jnp.abs(jnp.sum(components) - timestep.reward) <= 1e-4 * (1 + jnp.abs(timestep.reward))
    over = timestep.terminated | timestep.truncated
    return {
        "reward": ~finite | ~close,
        "observation": ~jnp.all(jnp.isfinite(seen)) | jnp.any(seen < 0),
        "mask": ~jnp.any(timestep.action_mask) | (over & ~jnp.all(timestep.action_mask)),
        "end": timestep.terminated != (info["won"] | info["died"] | info["invalid_action"]),
        "winning": info["won"] & ((after.stage != 8) | (after.player.cell != after.exit)),
        "no one plays an invalid action": info["invalid_action"],
        "info": info["stage"] != after.stage,
    }

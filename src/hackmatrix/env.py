"""HackMatrix as an environment: the phases of a step, in their order."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from hackmatrix import enemies, history, moves, observation, paths, programs, rewards, siphon
from hackmatrix.batching import total
from hackmatrix.draws import Draws, Use
from hackmatrix.entities import FREE
from hackmatrix.planes import single
from hackmatrix.programs import NUM_PROGRAMS, Program
from hackmatrix.spawning import spawn, spawn_due
from hackmatrix.stages import CORNERS, Layout, enter, lay_out
from hackmatrix.state import MAX_HP, NUM_STAGES, State, blank_state, choose, replace
from ppo_mask.env import AbstractEnv, TimeStep, rarely

SIPHON_ACTION = 4
FIRST_PROGRAM = 5
NUM_ACTIONS = FIRST_PROGRAM + NUM_PROGRAMS
MIN_UNDO_DEPTH = 8

_BONUSES = ((10, 0, 0), (0, 11, 0), (0, 0, 1))  # credits, energy, data siphons


class _Action(NamedTuple):
    """An action, taken apart.

    Attributes:
        moves: it is a move.
        direction: up, down, left or right, if it is one.
        siphons: it is SIPHON.
        program: the program's number, or -1.
    """

    moves: Bool[Array, ""]
    direction: Int[Array, ""]
    siphons: Bool[Array, ""]
    program: Int[Array, ""]


class _Effect(NamedTuple):
    """What the player's own part of a step led to."""

    state: State
    kills: Int[Array, ""]
    walked: Bool[Array, ""]
    picked_up: Bool[Array, ""]


class HackMatrix(AbstractEnv[State]):
    """A turn-based roguelike on a 6×6 grid, with 28 actions, 23 programs and 8 stages.

    The observation is flat, float32[1545]. An action outside the mask changes nothing, ends the
    episode and gives no reward. ``info`` holds ``reward/<component>`` for all 15 components,
    ``stage``, ``won``, ``died``, ``stage_completed`` and ``invalid_action``.

    Attributes:
        undo_depth: positions that UNDO can go back through in a stage, at least 8.
        max_steps: actions after which an episode is truncated; None for no limit.
    """

    undo_depth: int = eqx.field(default=MIN_UNDO_DEPTH, static=True)
    max_steps: int | None = eqx.field(default=None, static=True)
    num_actions: int = eqx.field(default=NUM_ACTIONS, static=True, init=False)

    def __check_init__(self) -> None:
        if self.undo_depth < MIN_UNDO_DEPTH:
            raise ValueError(f"undo_depth must be at least {MIN_UNDO_DEPTH}, got {self.undo_depth}")
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"max_steps must be at least 1 or None, got {self.max_steps}")

    def reset(self, key: Key[Array, ""]) -> tuple[State, TimeStep]:
        """A new game."""
        draws = Draws(key)
        state = blank_state(self.undo_depth, history.SNAPSHOT_WORDS)
        corner = jnp.array(CORNERS, jnp.int32)[draws.below(len(CORNERS), Use.CORNER)]
        bonus = draws.below(len(_BONUSES), Use.BONUS)
        credits, energy, data_siphons = jnp.array(_BONUSES, jnp.int32)[bonus]
        player = replace(
            state.player, cell=corner, credits=credits, energy=energy, data_siphons=data_siphons
        )
        layout = lay_out((draws, corner, state.entities))
        state = enter(replace(state, player=player), layout)
        state = spawn(state, draws, False, state.stage, from_siphon=False)
        off = jnp.bool_(False)
        nothing = {name: jnp.float32(0) for name in rewards.COMPONENTS}
        return state, self._timestep(state, nothing, off, off, off, off)

    def step(
        self, key: Key[Array, ""], state: State, action: Int[Array, ""]
    ) -> tuple[State, TimeStep]:
        """One action and, if it ends the turn, the enemy turn."""
        draws = Draws(key).computed_once(state.steps < 0)
        in_range = (action >= 0) & (action < NUM_ACTIONS)
        valid = in_range & self.action_mask(state)[jnp.clip(action, 0, NUM_ACTIONS - 1)]
        act = _take_apart(action, valid)
        before = state
        quality = rarely(act.siphons, siphon.quality, _bare(before), jnp.float32(0))

        effect = _act(state, act, draws)
        state = effect.state
        completed = (effect.walked | (act.program == Program.WARP)) & (
            state.player.cell == state.exit
        )
        won = completed & (state.stage == NUM_STAGES)
        new_stage = completed & ~won
        state = _reward_stage(state, completed)
        state = _enter_next_stage(draws, state, new_stage)

        ends_turn = (act.moves & ~completed) | act.siphons | (act.program == Program.WAIT)
        enemies_act = ends_turn & ~state.step_pending
        state = choose(enemies_act, enemies.enemy_turn(state, draws), state)
        state = spawn_due(state, draws, enemies_act, new_stage)
        state = replace(
            state,
            step_pending=state.step_pending & ~ends_turn,
            history=history.push(state, enemies_act),
            steps=state.steps + 1,
        )
        died = enemies_act & (state.player.hp <= 0)

        old_distance, new_distance = _exit_distances(before, state)
        events = rewards.Events(
            kills=effect.kills,
            picked_up=effect.picked_up,
            completed=completed,
            won=won,
            died=died,
            wasted_reset=(act.program == Program.RESET) & (before.player.hp == MAX_HP - 1),
            siphon_quality=quality,
            old_distance=old_distance,
            new_distance=jnp.where(completed, 0, new_distance),
        )
        components = rewards.components(before, state, events)
        components = {name: jnp.where(valid, x, 0.0) for name, x in components.items()}
        return state, self._timestep(state, components, won, died, completed, ~valid)

    def observe(self, state: State) -> Float[Array, "observation"]:
        """The flat observation of a position: player, programs, grid."""
        return observation.observe(state)

    def action_mask(self, state: State) -> Bool[Array, "actions"]:
        """Which actions are valid in a position."""
        enemies_at, transmissions_at = state.entities.occupied()
        return jnp.concatenate(
            [
                moves.valid_moves(state, enemies_at),
                (state.player.data_siphons > 0)[None],
                programs.valid_programs(state, enemies_at, transmissions_at),
            ]
        )

    def _timestep(
        self,
        state: State,
        components: dict[str, Float[Array, ""]],
        won: Bool[Array, ""],
        died: Bool[Array, ""],
        completed: Bool[Array, ""],
        invalid: Bool[Array, ""],
    ) -> TimeStep:
        terminated = won | died | invalid
        truncated = jnp.bool_(False)
        if self.max_steps is not None:
            truncated = ~terminated & (state.steps >= self.max_steps)
        mask = self.action_mask(state)
        # Walled in on every side with nothing to run, the player can only lose: any action is
        # invalid and ends the episode, so all are offered.
        stuck = ~jnp.any(mask)
        info = {f"reward/{name}": component for name, component in components.items()}
        info |= {
            "stage": state.stage,
            "won": won,
            "died": died,
            "stage_completed": completed,
            "invalid_action": invalid,
        }
        return TimeStep(
            observation=self.observe(state),
            action_mask=mask | terminated | truncated | stuck,
            reward=sum(components.values(), start=jnp.float32(0)),
            terminated=terminated,
            truncated=truncated,
            info=info,
        )


def _take_apart(action: Int[Array, ""], valid: Bool[Array, ""]) -> _Action:
    """The parts of an action; of an invalid one, none."""
    is_move = valid & (action < SIPHON_ACTION)
    return _Action(
        moves=is_move,
        direction=jnp.where(is_move, action, 0),
        siphons=valid & (action == SIPHON_ACTION),
        program=jnp.where(valid & (action >= FIRST_PROGRAM), action - FIRST_PROGRAM, -1),
    )


def _act(state: State, act: _Action, draws: Draws) -> _Effect:
    """The player's own part of a step: everything before the enemy turn."""
    program = act.program
    at_start = single(state.player.cell)
    hit_transmission, hit_enemy = moves.target(state, act.direction)
    attacks = act.moves & (hit_transmission | hit_enemy).any()
    walks = act.moves & ~attacks

    # Whom it harms.
    table = state.entities
    warped_to = programs.warp_slot(table, draws)
    strike = programs.strike(state, program, warped_to)
    attacked = table.first(table.is_enemy & hit_enemy.has(table.cell)) & attacks
    interrupted = table.is_transmission & hit_transmission.has(table.cell) & attacks
    gone = strike.gone | interrupted
    warp_cell = table.cell[warped_to].astype(jnp.int32)
    table = programs.hurt(table, strike.hit | attacked, strike.damage)
    table = programs.delay(table, program)
    # Of those gone, CRASH and WARP count one enemy and one transmission a cell.
    table, counted_gone = rarely(
        programs.regroups(program),
        programs.regroup,
        (table, gone, state.player.cell, program, draws),
        (table, gone),
    )
    killed = programs.dead(table)
    counted = (killed | counted_gone) & ~table.from_task
    table = replace(table, kind=jnp.where(killed | gone, jnp.int8(FREE), table.kind))

    # What else it changes.
    board = programs.run_on_board(state.board, program, at_start.around())
    state = replace(state, entities=table, board=board)
    state = choose(act.siphons, siphon.siphon(state), state)
    state = programs.run_on_player(state, program)
    state = history.undo(state, program == Program.UNDO)

    # Where it takes the player.
    cell = jnp.where(walks, moves.next_cell(state, act.direction), state.player.cell)
    cell = jnp.where(program == Program.WARP, warp_cell, cell)
    picked_up = walks & state.board.pickups.has(cell)
    player = replace(state.player, cell=cell, data_siphons=state.player.data_siphons + picked_up)
    pickups = state.board.pickups & ~single(cell).where(picked_up)
    state = replace(state, player=player, board=replace(state.board, pickups=pickups))
    return _Effect(state, total(counted), walks, picked_up)


def _reward_stage(state: State, completed: Bool[Array, ""]) -> State:
    hp = jnp.where(completed, jnp.minimum(state.player.hp + 1, MAX_HP), state.player.hp)
    return replace(state, player=replace(state.player, hp=hp))


def _enter_next_stage(draws: Draws, state: State, condition: Bool[Array, ""]) -> State:
    current = Layout(state.exit, state.board, state.entities.order)
    layout = rarely(condition, lay_out, (draws, state.player.cell, state.entities), current)
    return choose(condition, enter(replace(state, stage=state.stage + 1), layout), state)


def _bare(state: State) -> State:
    """The position without its history, for what neither reads nor changes that."""
    return replace(state, history=None)


def _exit_distances(*states: State) -> Int[Array, "states"]:
    places = [(state.board.blocks, state.player.cell, state.exit) for state in states]
    return jax.vmap(paths.exit_distance)(*jax.tree.map(lambda *x: jnp.stack(x), *places))

"""The game with its laws looked at: random play over many environments checks them on the device.

The laws of :mod:`invariants` come back in ``info``, and those of UNDO, which need a memory.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from hackmatrix import HackMatrix
from hackmatrix.env import new_state
from hackmatrix.rules.entities import FREE
from hackmatrix.rules.game import replace
from hackmatrix.rules.programs import NUM_PROGRAMS, Program
from hackmatrix.rules.state import State
from invariants import enemies_act, laws
from ppo_mask.envs import AbstractEnv

BROKEN = "broken/"


class WatchedState(eqx.Module):
    """A game and, for UNDO, marks of the positions that its history must hold (newest first)."""

    inner: State
    marks: jax.Array
    kept: jax.Array


class Watched(AbstractEnv):
    """HackMatrix with gifts at the start of half of the games and every law checked in ``info``."""

    env: HackMatrix = HackMatrix()
    num_actions: int = eqx.field(default=28, static=True)

    def reset(self, key):
        game_key, gift_key = jax.random.split(key)
        state, timestep = self.env.reset(game_key)
        game = state.game
        rich, stage_8 = jax.random.uniform(gift_key, (2,)) < jnp.array([0.5, 0.1])
        player = game.player
        gifts = replace(
            player,
            credits=player.credits + jnp.where(rich, 40, 0),
            energy=player.energy + jnp.where(rich, 40, 0),
            data_siphons=player.data_siphons + jnp.where(rich, 5, 0),
        )
        game = replace(
            game,
            player=gifts,
            owned=jnp.where(rich, jnp.uint32((1 << NUM_PROGRAMS) - 1), game.owned),
            stage=jnp.where(stage_8, 8, game.stage),
        )
        state = new_state(game, self.env.undo_depth)
        timestep = replace(
            timestep,
            observation=self.env.observe(state),
            action_mask=self.env.action_mask(state),
            info=timestep.info | dict.fromkeys(_law_names(), jnp.bool_(False)),
        )
        marks = jnp.zeros(self.env.undo_depth, jnp.uint32)
        return WatchedState(state, marks, jnp.int32(0)), timestep

    def step(self, key, state, action):
        inner, timestep = self.env.step(key, state.inner, action)
        before, after = state.inner.game, inner.game
        pushed = enemies_act(before, after, action, timestep)
        mark, undone = _mark(after), action == 5 + Program.UNDO
        broken = laws(before, after, action, timestep)
        broken["undo"] = undone & ((mark != state.marks[0]) | (state.kept == 0))
        up = jnp.concatenate([mark[None], state.marks[:-1]])
        down = jnp.roll(state.marks, -1)
        marks = jnp.where(pushed, up, jnp.where(undone, down, state.marks))
        kept = jnp.minimum(state.kept + pushed - undone, self.env.undo_depth)
        broken["history"] = (after.undo_length != kept) & ~timestep.info["stage_completed"]
        kept = jnp.where(timestep.info["stage_completed"], 0, kept)
        info = timestep.info | {BROKEN + name: flag for name, flag in broken.items()}
        return WatchedState(inner, marks, kept), replace(timestep, info=info)


def _law_names():
    env = HackMatrix()
    key = jax.random.key(0)
    state, timestep = jax.eval_shape(env.reset, key)
    game = jax.eval_shape(lambda state: state.game, state)
    made = jax.eval_shape(laws, game, game, jax.ShapeDtypeStruct((), jnp.int32), timestep)
    return [BROKEN + name for name in (*made, "undo", "history")]


def _mark(game):
    """A number that hardly any two positions share, of all that UNDO must bring back."""
    table = game.entities
    fields = (table.type, table.cell, table.hp, table.turns, table.disabled, table.stunned)
    flags = (table.from_siphon, table.from_task)
    entities = table.kind.astype(jnp.uint32)
    for field in (*fields, *flags):
        entities = (entities * jnp.uint32(1000003)) ^ field.astype(jnp.uint32)
    entities = jnp.sum(jnp.where(table.kind != FREE, entities * entities, 0), dtype=jnp.uint32)
    others = (game.player, game.board, game.turn, game.owned, game.show, game.calm, game.atk_uses)
    mark = entities
    for leaf in jax.tree.leaves(others):
        leaf = leaf.reshape(-1).astype(jnp.uint32)
        weights = jnp.arange(1, leaf.size + 1, dtype=jnp.uint32) * jnp.uint32(2654435761)
        mark = (mark * jnp.uint32(31)) + jnp.sum(leaf * weights, dtype=jnp.uint32)
    return mark

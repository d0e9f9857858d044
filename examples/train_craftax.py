"""Trains on Craftax, with a mask of the actions that can change something.

pip install ppo-mask craftax
python examples/train_craftax.py
python examples/train_craftax.py --no-mask
python examples/train_craftax.py --game full

A masked action would change nothing but the time: crafting without the materials or away from the
table, placing what one does not have, walking into a wall. What is only unwise stays allowed. The
mask tells no more than the observation does: what lies in the dark may be anything.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from craftax.craftax import constants as full  # pyright: ignore[reportMissingImports]
from craftax.craftax_classic import constants as classic  # pyright: ignore[reportMissingImports]
from craftax.craftax_env import make_craftax_env_from_name  # pyright: ignore[reportMissingImports]
from jaxtyping import Array, Bool, Key

from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.jax_tools import IntScalarLike
from ppo_mask.networks import Model, network_for
from ppo_mask.ppo import PPO
from ppo_mask.runner import NetworkSettings, RunConfig, RunSettings, Task, main, setting
from ppo_mask.training import Metric

NAMES = {"classic": "Craftax-Classic-Symbolic-v1", "full": "Craftax-Symbolic-v1"}
# The classic game has the first blocks and the first actions of the full one.
BLOCKS = {block.name: block.value for block in full.BlockType}
ITEMS = {item.name: item.value for item in full.ItemType}
BY_HAND = "TREE GRASS WATER RIPE_PLANT"
BY_HAND_IN_FULL = " FIRE_TREE ICE_SHRUB FOUNTAIN CHEST FURNACE CRAFTING_TABLE NECROMANCER"
BY_PICKAXE = ("STONE COAL STALAGMITE", "IRON", "DIAMOND", "SAPPHIRE RUBY")
POTIONS = ("RED", "GREEN", "BLUE", "PINK", "CYAN", "YELLOW")
MOVES = np.array([[0, -1], [0, 1], [-1, 0], [1, 0]])  # Left, right, up, down.


def find_allowed(state: Any, is_full: bool) -> dict[str, Array | bool]:
    """Finds out which actions can change something, by name and in the game's order."""
    have = state.inventory
    level: Any = state.player_level if is_full else ...  # The classic game has one.

    # What the player sees of its own cell and the eight around it: nothing where it is dark.
    def around(grid: Array, outside: int) -> Array:
        padded = jnp.pad(grid[level], 1, constant_values=outside)
        return jax.lax.dynamic_slice(padded, state.player_position, (3, 3))

    def may_be(names: str) -> Array:
        return dark | jnp.isin(blocks, np.array([BLOCKS[name] for name in names.split()]))

    blocks = around(state.map, BLOCKS["OUT_OF_BOUNDS"])
    if is_full:
        dark = around(state.light_map, 0) <= 0.05
        item = around(state.item_map, ITEMS["NONE"])
        creatures = [state.melee_mobs, state.passive_mobs, state.ranged_mobs]
    else:
        dark, item = jnp.zeros((3, 3), bool), jnp.zeros((3, 3), int)
        creatures = [state.zombies, state.cows, state.skeletons]
    cells = jnp.concatenate([x.position[level] for x in creatures]) - state.player_position + 1
    there = jnp.concatenate([x.mask[level] for x in creatures])
    there &= ((cells >= 0) & (cells < 3)).all(-1)
    creature = jnp.zeros((3, 3), bool).at[tuple(cells.T)].max(there) & ~dark
    front = tuple(1 + jnp.asarray(MOVES)[state.player_direction - 1])

    # A move turns the player, or takes it to the next cell.
    solid = jnp.isin(blocks, jnp.asarray((full if is_full else classic).SOLID_BLOCKS))
    solid = (solid | (blocks == BLOCKS["OUT_OF_BOUNDS"])) & ~dark
    if is_full:
        blocked = solid | creature | (may_be("WATER LAVA") & ~dark)
    else:  # Water is solid, and nothing keeps the player from lava.
        blocked = solid | (creature & ~may_be("LAVA"))
    moves = (state.player_direction != jnp.arange(1, 5)) | ~blocked[tuple(1 + MOVES.T)]

    # Collecting, drinking, eating and fighting; some blocks need a pickaxe, of a level.
    pickaxes = (
        [have.pickaxe >= n for n in (1, 2, 3, 4)]
        if is_full
        else [have.wood_pickaxe > 0, have.stone_pickaxe > 0, have.iron_pickaxe > 0]
    )
    usable = creature | may_be(BY_HAND + (BY_HAND_IN_FULL if is_full else ""))
    for pickaxe, names in zip(pickaxes, BY_PICKAXE, strict=False):
        usable |= pickaxe & may_be(names)

    # The full game makes no tool that is no better than the one there is.
    pickaxe, sword = (have.pickaxe, have.sword) if is_full else (0, 0)
    wood, stone, coal, iron = have.wood > 0, have.stone > 0, have.coal > 0, have.iron > 0
    beside = np.arange(9).reshape(3, 3) != 4
    at_table = (may_be("CRAFTING_TABLE") & beside).any()
    at_forge = at_table & (may_be("FURNACE") & beside).any()
    bare = ~creature & (dark | (item == ITEMS["NONE"]))
    room = (bare & ~solid)[front]
    allowed = {
        "NOOP": True,
        **dict(zip(("LEFT", "RIGHT", "UP", "DOWN"), moves, strict=True)),
        "DO": usable[front],
        "SLEEP": state.player_energy < (7 + 2 * state.player_dexterity if is_full else 9),
        "PLACE_STONE": stone & (room | (may_be("WATER") & ~creature)[front]),
        "PLACE_TABLE": (have.wood >= 2) & room,
        "PLACE_FURNACE": stone & room,
        "PLACE_PLANT": (have.sapling > 0) & (may_be("GRASS") & bare)[front],
        "MAKE_WOOD_PICKAXE": at_table & wood & (pickaxe < 1),
        "MAKE_STONE_PICKAXE": at_table & wood & stone & (pickaxe < 2),
        "MAKE_IRON_PICKAXE": at_forge & wood & stone & coal & iron & (pickaxe < 3),
        "MAKE_WOOD_SWORD": at_table & wood & (sword < 1),
        "MAKE_STONE_SWORD": at_table & wood & stone & (sword < 2),
        "MAKE_IRON_SWORD": at_forge & wood & stone & coal & iron & (sword < 3),
    }
    if not is_full:
        return allowed
    here = jnp.where(dark, -1, item)[1, 1]
    is_cleared = state.monsters_killed[level] >= full.MONSTERS_KILLED_TO_CLEAR_LEVEL
    ground = may_be("GRASS SAND PATH FIRE_GRASS ICE_GRASS") & bare
    spells = state.learned_spells & (state.player_mana >= 2)
    gem = (have.ruby > 0) & may_be("ENCHANTMENT_TABLE_FIRE")
    gem |= (have.sapphire > 0) & may_be("ENCHANTMENT_TABLE_ICE")
    can_enchant = gem[front] & (state.player_mana >= 9)
    lacks_iron, lacks_diamond = (have.armour < 1).any(), (have.armour < 2).any()
    can_learn = state.player_xp > 0
    return allowed | {
        # Even in full health: a blow in this very step makes a rest possible.
        "REST": (state.player_food > 0) & (state.player_drink > 0),
        "DESCEND": ((here == ITEMS["LADDER_DOWN"]) | (here < 0)) & is_cleared & (level < 8),
        "ASCEND": ((here == ITEMS["LADDER_UP"]) | (here < 0)) & (level > 0),
        "MAKE_DIAMOND_PICKAXE": at_table & wood & (have.diamond >= 3) & (pickaxe < 4),
        "MAKE_DIAMOND_SWORD": at_table & wood & (have.diamond >= 2) & (sword < 4),
        "MAKE_IRON_ARMOUR": at_forge & (have.iron >= 3) & (have.coal >= 3) & lacks_iron,
        "MAKE_DIAMOND_ARMOUR": at_table & (have.diamond >= 3) & lacks_diamond,
        "SHOOT_ARROW": (have.bow > 0) & (have.arrows > 0),
        "MAKE_ARROW": at_table & wood & stone & (have.arrows < 99),
        "CAST_FIREBALL": spells[0],
        "CAST_ICEBALL": spells[1],
        "PLACE_TORCH": (have.torches > 0) & ground[front],
        **{f"DRINK_POTION_{color}": have.potions[n] > 0 for n, color in enumerate(POTIONS)},
        "READ_BOOK": have.books > 0,
        "ENCHANT_SWORD": can_enchant & (have.sword > 0),
        "ENCHANT_ARMOUR": can_enchant & (have.armour > 0).any(),
        "MAKE_TORCH": at_table & wood & coal & (have.torches < 99),
        "LEVEL_UP_DEXTERITY": can_learn & (state.player_dexterity < 5),
        "LEVEL_UP_STRENGTH": can_learn & (state.player_strength < 5),
        "LEVEL_UP_INTELLIGENCE": can_learn & (state.player_intelligence < 5),
        "ENCHANT_BOW": can_enchant & (have.bow > 0),
    }


class Craftax(AbstractEnv[Any]):
    """Craftax, with observations of numbers.

    Attributes:
        is_full: whether it is the full game and not the classic one.
        has_mask: whether the mask has the game's rules; else it allows everything.
        game: the environment of Craftax.
        num_actions: the number of actions.
    """

    is_full: bool = eqx.field(static=True)
    has_mask: bool = eqx.field(static=True)
    game: Any = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __init__(self, name: str = "classic", has_mask: bool = True):
        self.is_full, self.has_mask = name == "full", has_mask
        self.game = make_craftax_env_from_name(NAMES[name], auto_reset=False)
        self.num_actions = self.game.num_actions

    def reset(self, key: Key[Array, ""]) -> tuple[Any, TimeStep]:
        """Makes a new world."""
        params = self.game.default_params
        observation, state = self.game.reset_env(jax.random.key_data(key), params)
        state = jax.tree.map(jnp.asarray, state)  # Some are Python's numbers.
        return state, self.show(observation, state, 0.0, False)

    def step(self, key: Key[Array, ""], state: Any, action: IntScalarLike) -> tuple[Any, TimeStep]:
        """Plays one action."""
        key, params = jax.random.key_data(key), self.game.default_params
        observation, state, reward, over, _ = self.game.step_env(key, state, action, params)
        return state, self.show(observation, state, reward, over)

    def show(self, observation: Array, state: Any, reward: Any, over: Any) -> TimeStep:
        """Makes a time step; at the time limit, which is a truncation, it keeps its mask."""
        late = state.timestep >= self.game.default_params.max_timesteps
        mask = self.mask_of(state) | (over & ~late)
        info = {"achievements": state.achievements.sum()}
        return TimeStep(observation, mask, reward, over & ~late, over & late, info)

    def mask_of(self, state: Any) -> Bool[Array, " actions"]:
        """Returns the mask of the game's rules, or one that allows everything."""
        if not self.has_mask:
            return jnp.ones(self.num_actions, bool)
        allowed = jnp.stack([jnp.asarray(x) for x in find_allowed(state, self.is_full).values()])
        is_idle = state.is_sleeping | (state.is_resting if self.is_full else False)
        return allowed & (~is_idle | (jnp.arange(self.num_actions) == 0))


@dataclasses.dataclass(frozen=True)
class Game:
    """The game."""

    game: str = setting("classic", "which of the two games", one_of=tuple(NAMES))
    mask: bool = setting(True, "mask actions that would change nothing")


def make_gru(env: AbstractEnv[Any], network: NetworkSettings, key: Array) -> Model:
    """Makes the network: what lies out of view is worth remembering."""
    return network_for(env, "gru", hidden_dim=network.hidden_dim, layer_norm=True, key=key)


TASK = Task[Game](
    lambda settings: Craftax(settings.game, settings.mask),
    networks={"gru": make_gru},
    metrics={"stats/achievements": Metric(lambda _, info: info["achievements"], over="episodes")},
    console_columns={"achievements": "stats/achievements"},
)
ALGORITHM = PPO(
    num_envs=48,
    num_steps=96,
    num_minibatches=8,
    learning_rate=5e-4,
    anneal_lr=True,
    gamma=0.925,
    gae_lambda=0.625,
)
DEFAULTS = RunConfig(Game(), ALGORITHM, run=RunSettings(total_timesteps=1_000_000))

if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS, description="Trains on Craftax."))

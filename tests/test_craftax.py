"""The masks of examples/train_craftax.py, against the games themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_mask.runner import main
from source import load

pytest.importorskip("craftax", reason="see nightly in .ci/run")
pytestmark = [pytest.mark.optimized, pytest.mark.nightly]

EXAMPLE = load("examples/train_craftax.py")
GAMES, KEPT, STEPS = 16, 8, 40
# They may change nothing though the mask allows them: by chance, because a block resists, because
# of three projectiles that the player does not see, or because the player is in full health.
UNSURE = {"NOOP", "DO", "SHOOT_ARROW", "CAST_FIREBALL", "CAST_ICEBALL", "REST"}


def play(env, key):
    """States of random play by the mask; a step that ends the game is taken back."""

    def move(state, key):
        act, step = jax.random.split(key)
        action = jax.random.categorical(act, jnp.where(env.mask_of(state), 0.0, -jnp.inf))
        after, timestep = env.step(step, state, action)
        return jax.tree.map(lambda x, y: jnp.where(timestep.terminated, x, y), state, after)

    def part(state, key):
        keys = jax.random.split(key, STEPS)
        state = jax.lax.fori_loop(0, STEPS, lambda n, x: move(x, keys[n]), state)
        return state, state

    def game(key):
        return jax.lax.scan(part, env.reset(key)[0], jax.random.split(key, KEPT))[1]

    states = jax.vmap(game)(jax.random.split(key, GAMES))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), states)


# Of a classic world or a full one, with more of those that actions are for.
CLASSIC_BLOCKS = (*range(2, 17), *(11, 12) * 3)
FULL_BLOCKS = (*range(2, 37), *(11, 12, 30, 31) * 3)


def without_ghosts(state):
    """The classic game's DO revives creatures that are gone: a bug, and here they are dead."""
    creatures = {name: getattr(state, name) for name in ("zombies", "cows", "skeletons")}
    dead = {name: x.replace(health=x.health * x.mask) for name, x in creatures.items()}
    return state.replace(**dead)


def enrich(is_full, key, state):
    """The state with other things at hand and around: random play has few of them."""
    keys = iter(jax.random.split(key, 100))

    def number(low, high, shape=()):
        return jax.random.randint(next(keys), shape, low, high)

    def chance(share, shape=()):
        return jax.random.uniform(next(keys), shape) < share

    def sprinkle(grid, values, level, share):
        """Some of the values in cells around the player."""
        new = jnp.asarray(values, grid.dtype)[number(0, len(values), (3, 3))]
        corner = state.player_position - 1
        old = jax.lax.dynamic_slice(grid[level], corner, (3, 3))
        new = jnp.where(chance(share, (3, 3)), new, old)
        return grid.at[level].set(jax.lax.dynamic_update_slice(grid[level], new, corner))

    # Not at the edge of the world, and half of the time with a creature ahead.
    position = jnp.clip(state.player_position, 1, state.map.shape[-1] - 2)
    direction, crowd = number(1, 5), chance(0.5)
    ahead = position + jnp.asarray(EXAMPLE.MOVES)[direction - 1]
    state = state.replace(
        player_position=position,
        player_direction=direction,
        player_energy=number(1, 10),
        player_food=number(0, 10),
        is_sleeping=chance(0.1),
        inventory=jax.tree.map(lambda x: number(0, 4, x.shape).astype(x.dtype), state.inventory),
    )
    level = number(0, 9) if is_full else ...
    creatures = state.melee_mobs if is_full else state.cows
    first = (level, 0) if is_full else 0
    old, was_there = creatures.position[first], creatures.mask[first]
    cell = (lambda x: (level, x[0], x[1])) if is_full else tuple
    creatures = creatures.replace(
        position=creatures.position.at[first].set(jnp.where(crowd, ahead, old)),
        health=creatures.health.at[first].set(5),
        mask=creatures.mask.at[first].set(crowd),
    )
    state = state.replace(
        mob_map=state.mob_map.at[cell(old)].min(~was_there).at[cell(ahead)].max(crowd),
        map=sprinkle(state.map, FULL_BLOCKS if is_full else CLASSIC_BLOCKS, level, 0.5),
    )
    if not is_full:
        return state.replace(cows=creatures)
    light = state.light_map.at[level].set(chance(0.6))
    # The first step on a level gives experience.
    been_there = state.achievements.at[EXAMPLE.full.LEVEL_ACHIEVEMENT_MAP].set(True)
    return state.replace(
        melee_mobs=creatures,
        achievements=been_there,
        player_level=level,
        player_mana=number(0, 12),
        player_drink=number(0, 10),
        player_xp=number(0, 2),
        player_dexterity=number(1, 6),
        player_strength=number(1, 6),
        player_intelligence=number(1, 6),
        learned_spells=chance(0.5, (2,)),
        is_resting=chance(0.1),
        monsters_killed=number(6, 11, (9,)),
        item_map=sprinkle(state.item_map, (0, 1, 2, 3, 4), level, 0.4),
        light_map=sprinkle(light, (0, 1), level, jnp.where(chance(0.5), 0.5, 0)),
    )


@pytest.fixture(scope="module", params=EXAMPLE.NAMES)
def case(request):
    """An environment, states of it, and their masks."""
    env = EXAMPLE.Craftax(request.param)
    played = jax.jit(lambda key: play(env, key))(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), len(played.timestep))
    rich = jax.jit(jax.vmap(lambda key, state: enrich(env.is_full, key, state)))(keys, played)
    states = jax.tree.map(lambda *x: jnp.concatenate(x), played, rich)
    states = states if env.is_full else without_ghosts(states)
    return env, states, np.asarray(jax.jit(jax.vmap(env.mask_of))(states))


def names_of(env):
    return [action.name for action in EXAMPLE.full.Action][: env.num_actions]


def differ(one, other):
    return ~jnp.array(
        [
            ((x == y) | ((x != x) & (y != y))).all()
            for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
        ]
    ).all()


def test_what_is_masked_changes_nothing_and_what_is_allowed_does(case):
    env, states, masks = case
    keys = jax.random.split(jax.random.key(2), len(masks))

    @jax.jit
    def step(action):
        return jax.vmap(env.step, (0, 0, None))(keys, states, action)

    # By one program: another one may round otherwise.
    waited = step(0)
    different = jax.jit(jax.vmap(differ))
    changed = np.stack([different(step(n), waited) for n in range(env.num_actions)], 1)
    names = names_of(env)
    # The second half of the states are the enriched ones.
    void = {names[n]: int(row) for row, n in np.argwhere(~masks & changed)}
    assert void == {}
    # Each rule was asked, with both answers.
    assert {x for x, share in zip(names, masks.mean(0), strict=True) if share in (0, 1)} == {"NOOP"}

    is_sure = np.array([name not in UNSURE for name in names])
    if env.is_full:
        dark = np.asarray(jax.vmap(lambda s: s.light_map[s.player_level].min() <= 0.05)(states))
        is_sure = is_sure & ~dark[:, None]
    wide = {names[n]: int(row) for row, n in np.argwhere(masks & ~changed & is_sure)}
    assert wide == {}


def test_the_mask_tells_no_more_than_the_observation(case):
    env, states, masks = case
    rows, columns = (EXAMPLE.full if env.is_full else EXAMPLE.classic).OBS_DIM

    def scramble(key, state):
        """Other blocks and items wherever the player does not see."""
        key, other = jax.random.split(key)
        own = (state.player_level,) if env.is_full else ()
        at = jnp.indices(state.map.shape[-2:]) - state.player_position[:, None, None]
        seen = (jnp.abs(at[0]) <= rows // 2) & (jnp.abs(at[1]) <= columns // 2)
        seen = jnp.zeros(state.map.shape, bool).at[own].set(seen)
        if not env.is_full:
            return state.replace(
                map=jnp.where(seen, state.map, jax.random.randint(key, seen.shape, 2, 17))
            )
        seen &= state.light_map > 0.05
        blocks = jax.random.randint(key, seen.shape, 2, 36)
        items = jax.random.randint(other, seen.shape, 0, 5)
        return state.replace(
            map=jnp.where(seen, state.map, blocks), item_map=jnp.where(seen, state.item_map, items)
        )

    keys = jax.random.split(jax.random.key(3), len(masks))
    others = jax.jit(jax.vmap(scramble))(keys, states)
    see = jax.jit(jax.vmap(env.game.get_obs))
    np.testing.assert_array_equal(see(others), see(states))
    np.testing.assert_array_equal(jax.vmap(env.mask_of)(others), masks)
    assert (np.asarray(others.map) != np.asarray(states.map)).any()


def test_without_its_rules_the_mask_allows_everything():
    # Not check_env: worlds made by jax.vmap differ a little, by rounding.
    env = EXAMPLE.Craftax("classic", has_mask=False)
    assert env.reset(jax.random.key(0))[1].action_mask.all()


def test_the_program_trains(tmp_path, capsys):
    small = ["--num-envs=8", "--num-steps=2", "--hidden-dim=8", "--total-timesteps=32"]
    own = [*small, "--log-interval=1", f"--checkpoint-dir={tmp_path}", "--run-name=a"]
    assert main(EXAMPLE.TASK, EXAMPLE.DEFAULTS, own) == 0
    assert "finished after 2 updates" in capsys.readouterr().out

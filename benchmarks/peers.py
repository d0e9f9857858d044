"""Environments of other libraries, with random valid actions and auto-reset, as for ours."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from subjects import Subject, played, random_actions


def pgx_game(name: str, num_envs: int, num_steps: int = 64) -> Subject:
    """A game of pgx, whose stochastic steps take a key."""
    import pgx
    from pgx.experimental import auto_reset

    env = pgx.make(name)
    reset = jax.vmap(env.init)
    advance = jax.vmap(auto_reset(env.step, env.init))

    def step(carry: Any) -> Any:
        key, state = carry  # The state has the observation.
        key, action_key, step_key = jax.random.split(key, 3)
        actions = random_actions(action_key, state.legal_action_mask)
        return key, advance(state, actions, jax.random.split(step_key, num_envs))

    state = jax.jit(reset)(jax.random.split(jax.random.key(0), num_envs))
    return played(step, (jax.random.key(1), state), num_envs, num_steps)


def jumanji_game(name: str, num_envs: int, num_steps: int = 64) -> Subject:
    """A game of jumanji, whose own wrapper resets it."""
    import jumanji
    from jumanji.wrappers import VmapAutoResetWrapper

    env = VmapAutoResetWrapper(jumanji.make(name))

    def step(carry: Any) -> Any:
        key, state, timestep = carry  # The time step has the observation.
        key, action_key = jax.random.split(key)
        actions = random_actions(action_key, timestep.observation.action_mask)
        return key, *env.step(state, actions)

    state, timestep = jax.jit(env.reset)(jax.random.split(jax.random.key(0), num_envs))
    return played(step, (jax.random.key(1), state, timestep), num_envs, num_steps)


def gymnax_game(name: str, num_envs: int, num_steps: int = 64) -> Subject:
    """A game of gymnax, which resets itself."""
    import gymnax

    env, params = gymnax.make(name)
    mask = jnp.ones((num_envs, env.num_actions), bool)

    def step(carry: Any) -> Any:
        key, state, _ = carry
        key, action_key, step_key = jax.random.split(key, 3)
        actions = random_actions(action_key, mask)
        keys = jax.random.split(step_key, num_envs)
        observation, state, *_ = jax.vmap(env.step, (0, 0, 0, None))(keys, state, actions, params)
        return key, state, observation

    keys = jax.random.split(jax.random.key(0), num_envs)
    observation, state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)
    return played(step, (jax.random.key(1), state, observation), num_envs, num_steps)


PEERS: dict[str, tuple[Callable[..., Subject], str]] = {
    "pgx 2048": (pgx_game, "2048"),
    "pgx MinAtar Breakout": (pgx_game, "minatar-breakout"),
    "jumanji PacMan": (jumanji_game, "PacMan-v1"),
    "jumanji Snake": (jumanji_game, "Snake-v1"),
    "gymnax Breakout": (gymnax_game, "Breakout-MinAtar"),
}

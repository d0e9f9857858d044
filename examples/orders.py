"""A small battle: a unit, then an order that it can carry out, then a target of that order.

pip install ppo-mask && python examples/orders.py
python examples/orders.py --flat
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

import ppo_mask as pm
from ppo_mask.envs.actions import Action
from ppo_mask.runner import NetworkSettings, RunConfig, RunSettings, Task, main, setting

UNITS, HEALTH, THEIRS = 12, 3, 9
STRIKE, HEAL = 0, 1
IS_ARCHER, IS_HEALER = np.arange(UNITS) % 3 == 1, np.arange(UNITS) % 3 == 2


class Battlefield(eqx.Module):
    """A position of the battle.

    Attributes:
        ours: the health of each of our units; 0 for those that have fallen.
        theirs: the health of each of theirs.
        has_moved: whether one of ours has carried out an order in this round.
    """

    ours: Int[Array, " units"]
    theirs: Int[Array, " units"]
    has_moved: Bool[Array, " units"]


class Battle(pm.AbstractEnv[Battlefield]):
    """Twelve against twelve.

    Knights strike the first of theirs that stands, with a force of 2. Archers strike any, with 1.
    Healers strike like knights, with 1, or heal a wounded unit. When all have moved, each of theirs
    takes a health from one of ours, at random. The reward is the share of health taken, and 1 for
    the battle.
    """

    num_actions: tuple[int, int, int] = (UNITS, 2, UNITS)  # The unit, the order, the target.

    def reset(self, key: Key[Array, ""]) -> tuple[Battlefield, pm.TimeStep]:
        """Lines up; some of theirs are healthier than others."""
        theirs = jax.random.randint(key, (UNITS,), HEALTH, THEIRS + 1)
        state = Battlefield(jnp.full(UNITS, HEALTH), theirs, jnp.zeros(UNITS, bool))
        return state, self.show(state, jnp.zeros(()))

    def step(
        self, key: Key[Array, ""], state: Battlefield, action: Action
    ) -> tuple[Battlefield, pm.TimeStep]:
        """Carries out an order; after the last one of a round, theirs strike."""
        unit, order, target = action
        force = jnp.where(IS_ARCHER | IS_HEALER, 1, 2)[unit] * (order == STRIKE)
        theirs = jnp.maximum(state.theirs.at[target].add(-force), 0)
        ours = jnp.minimum(state.ours.at[target].add(2 * (order == HEAL)), HEALTH)
        has_moved = state.has_moved.at[unit].set(True)
        round_is_over = (has_moved | (ours == 0)).all()
        chances = jnp.where(ours > 0, 0.0, -jnp.inf)
        struck = jax.random.categorical(key, chances, shape=(UNITS,))
        hits = jnp.zeros(UNITS, jnp.int32).at[struck].add(theirs > 0)
        ours = jnp.maximum(ours - hits * round_is_over, 0)
        after = Battlefield(ours, theirs, has_moved & ~round_is_over)
        taken = (state.theirs - theirs).sum() / (UNITS * THEIRS)
        return after, self.show(after, taken + (theirs == 0).all())

    def part_mask(self, state: Battlefield, prefix: Int[Array, " k"], k: int) -> Array:
        """The units that can move; what this unit can do; and to whom."""
        if k == 0:
            return (state.ours > 0) & ~state.has_moved
        wounded = (state.ours > 0) & (state.ours < HEALTH)
        if k == 1:
            return jnp.stack([jnp.array(True), jnp.array(IS_HEALER)[prefix[0]] & wounded.any()])
        standing = state.theirs > 0
        first = standing & (jnp.cumsum(standing) == 1)
        struck = jnp.where(jnp.array(IS_ARCHER)[prefix[0]], standing, first)
        return jnp.where(prefix[1] == HEAL, wounded, struck)

    def show(self, state: Battlefield, reward: Float[Array, ""]) -> pm.TimeStep:
        """Shows the health of all, and who has moved."""
        over = (state.ours == 0).all() | (state.theirs == 0).all()
        first = self.part_mask(state, jnp.zeros(0, jnp.int32), 0)
        mask = jnp.concatenate([first, jnp.ones(2 + UNITS, bool)]) | over
        seen = jnp.concatenate([state.ours / HEALTH, state.theirs / THEIRS, state.has_moved])
        won = (state.theirs == 0).all()
        return pm.TimeStep(seen, mask, reward, over, False, {"won": won})


class Flat(pm.AbstractEnv[Battlefield]):
    """The same battle, in which each combination of a unit, an order and a target is an action."""

    env: Battle
    num_actions: int = math.prod(Battle.num_actions)

    def reset(self, key: Key[Array, ""]) -> tuple[Battlefield, pm.TimeStep]:
        """See :class:`Battle`."""
        return self._flat(*self.env.reset(key))

    def step(
        self, key: Key[Array, ""], state: Battlefield, action: Action
    ) -> tuple[Battlefield, pm.TimeStep]:
        """See :class:`Battle`."""
        parts = jnp.stack(jnp.unravel_index(action, self.env.num_actions))
        return self._flat(*self.env.step(key, state, parts))

    def _flat(self, state: Battlefield, step: pm.TimeStep) -> tuple[Battlefield, pm.TimeStep]:
        every = jnp.stack(jnp.unravel_index(jnp.arange(self.num_actions), self.env.num_actions))
        mask = [
            jax.vmap(lambda parts, k=k: self.env.part_mask(state, parts[:k], k)[parts[k]])(every.T)
            for k in range(len(every))
        ]
        allowed = jnp.stack(mask).all(axis=0) | step.terminated
        return state, dataclasses.replace(step, action_mask=allowed)


@dataclasses.dataclass(frozen=True)
class Settings:
    """A battle."""

    flat: bool = setting(False, "whether each combination of the parts is an action")


def network(
    env: pm.AbstractEnv[Battlefield], sizes: NetworkSettings, key: Key[Array, ""]
) -> pm.Model:
    """An MLP; if actions have parts, their logits depend on the choices before them."""
    has_parts = isinstance(env.num_actions, tuple)
    linked: dict[str, Any] = {"part_embedding": 8} if has_parts else {}
    return pm.network_for(env, "mlp", key=key, hidden_dim=sizes.hidden_dim, **linked)


task = Task[Settings](
    lambda settings: Flat(Battle()) if settings.flat else Battle(),
    network,
    metrics={"stats/won": pm.Metric(lambda action, info: info["won"], over="episodes")},
    console_columns={"won": "stats/won"},
)
ppo = pm.PPO(num_envs=64, num_steps=64, learning_rate=1e-3, gamma=0.99)
defaults = RunConfig(
    Settings(), ppo, NetworkSettings(hidden_dim=64), run=RunSettings(total_timesteps=262_144)
)

if __name__ == "__main__":
    raise SystemExit(main(task, defaults))

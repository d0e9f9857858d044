"""Long random games: every law of the game after every step, and every program run often."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix import positions
from hackmatrix.rules.programs import CARDS, Program
from ppo_mask.envs import VectorEnv
from ppo_mask.networks import MaskedCategorical
from reference import legal
from watched import BROKEN, Watched

NUM_ENVS = 2_048
STEPS_AT_ONCE = 20
ENOUGH = 500


@pytest.fixture(scope="module")
def play():
    """A function that plays random valid actions in all environments, some steps at a time."""
    env = VectorEnv(Watched(), NUM_ENVS)

    def one(carry, key):
        state, mask = carry
        action_key, step_key = jax.random.split(key)
        logits = jnp.zeros(mask.shape[-1])
        keys = jax.random.split(action_key, NUM_ENVS)
        sample = jax.vmap(lambda mask, key: MaskedCategorical(logits, mask).sample(key))
        action = sample(mask, keys)
        state, timestep = env.step(step_key, state, action)
        broken = {k: jnp.sum(v) for k, v in timestep.info.items() if k.startswith(BROKEN)}
        counts = jnp.sum(action[:, None] == jnp.arange(28), axis=0)
        events = {name: jnp.sum(timestep.info[name]) for name in ("won", "died", "stage_completed")}
        return (state, timestep.action_mask), (broken, counts, events)

    @jax.jit
    def some_steps(carry, key):
        carry, seen = jax.lax.scan(one, carry, jax.random.split(key, STEPS_AT_ONCE))
        return carry, jax.tree.map(lambda x: jnp.sum(x, axis=0), seen)

    def play(steps, seed):
        state, timestep = jax.jit(env.reset)(jax.random.key(seed))
        carry, total = (state, timestep.action_mask), None
        for number in range(-(-steps // (NUM_ENVS * STEPS_AT_ONCE))):
            key = jax.random.fold_in(jax.random.key(seed + 1), number)
            carry, seen = some_steps(carry, key)
            seen = jax.device_get(seen)
            total = seen if total is None else jax.tree.map(np.add, total, seen)
        return jax.device_get(carry), total

    return play


def _assert_lawful(broken):
    assert {name: int(count) for name, count in broken.items() if count} == {}


@pytest.mark.optimized
def test_every_law_holds_over_a_million_steps_and_masks_are_what_the_reference_allows(play):
    (state, masks), (broken, counts, events) = play(1_000_000, 10)
    _assert_lawful(broken)
    used = {card.name: int(counts[5 + program]) for program, card in enumerate(CARDS)}
    assert min(used.values()) >= ENOUGH, used
    assert len(used) == len(Program)
    assert min(events.values()) >= ENOUGH or events["won"] > 0, events
    games = state.env_state.inner
    for row, position in enumerate(positions.dump_all(games)):
        allowed = legal(position, undoable=state.env_state.kept[row] > 0)
        # Who is walled in with nothing to run may try anything.
        assert set(np.flatnonzero(masks[row]).tolist()) == (allowed or set(range(28))), position

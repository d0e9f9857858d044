"""Functions that are compiled where they are called on their own."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix import HackMatrix
from hackmatrix.networks import PlayerCenteredMLP
from ppo_mask.jax_tools import jit_inline


class Unplayed(HackMatrix):
    """The game, of which no other test has compiled anything."""


def twice_added(x, times=2):
    return sum((x + n for n in range(times)), start=x)


def test_called_alone_it_is_one_program(compiled):
    function, x, y = jit_inline(twice_added), jnp.arange(7.0), jnp.ones(7)
    before = len(compiled())
    assert [function(each, times=3).shape for each in (x, y)] == [(7,), (7,)]
    assert compiled()[before:] == ["jit(twice_added)"]
    assert (function(x, times=3) == twice_added(x, times=3)).all()
    assert function.__name__ == "twice_added"


@pytest.mark.parametrize("transform", [lambda f: f, jax.vmap, jax.grad])
def test_within_another_program_it_leaves_no_trace(transform):
    x = jnp.ones(()) if transform is jax.grad else jnp.ones(3)
    inline, plain = (
        str(jax.make_jaxpr(transform(f))(x)) for f in (jit_inline(twice_added), twice_added)
    )
    assert inline == plain


@pytest.mark.parametrize("transform", [jax.jit, eqx.filter_jit, jax.vmap])
def test_a_method_is_a_method(transform):
    class Adder(eqx.Module):
        times: int = eqx.field(static=True)

        @jit_inline
        def added(self, x):
            """Adds."""
            return twice_added(x, self.times)

    assert Adder(3).added.__doc__ == "Adds."
    x = jnp.ones(2)
    assert (transform(Adder(3).added)(x) == twice_added(x, 3)).all()


def test_a_game_is_played_without_jit(compiled):
    env, key, keys = Unplayed(), jax.random.key(0), jax.random.split(jax.random.key(0), 3)
    state, timestep = env.reset(key)
    actions = np.flatnonzero(timestep.action_mask).tolist()
    assert len(actions) > 1
    for action in actions:
        following, _ = env.step(key, state, action)
    for each in (state, following):
        env.observe(each)
    jax.vmap(env.reset)(keys)
    assert compiled().count("jit(reset)") == 2  # Of one game and of three.
    assert [compiled().count(f"jit({name})") for name in ("_step", "observe")] == [1, 1]
    assert len(compiled()) < 20  # With what makes keys; op by op they were 270.


def test_a_network_of_the_game_acts_without_jit(compiled):
    model, compact = PlayerCenteredMLP(4, 1, key=jax.random.key(0)), HackMatrix(compact=True)
    _, timestep = compact.reset(jax.random.key(0))
    model(timestep.observation, timestep.action_mask)
    before = len(compiled())
    for number in range(1, 4):
        _, timestep = compact.reset(jax.random.key(number))
        model(timestep.observation, timestep.action_mask)
    assert len(compiled()) == before  # Each call compiled four loops again.

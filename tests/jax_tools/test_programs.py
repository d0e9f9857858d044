"""How functions become programs: compiled where they are called alone, and for which platform."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix import HackMatrix
from ppo_mask import jax_tools
from ppo_mask.jax_tools import _programs


def twice_added(x, times=2):
    return sum((x + n for n in range(times)), start=x)


def test_called_alone_it_is_one_program(compiled):
    function, x, y = jax_tools.jit_inline(twice_added), np.arange(7.0), np.ones(7, np.float32)
    before = len(compiled())
    assert [function(each, times=3).shape for each in (x, y)] == [(7,), (7,)]
    assert compiled()[before:] == ["jit(twice_added)"]
    assert (function(x, times=3) == twice_added(x, times=3)).all()
    assert function.__name__ == "twice_added"


@pytest.mark.parametrize("transform", [lambda f: f, jax.vmap, jax.grad])
def test_within_another_program_it_leaves_no_trace(transform):
    x = jnp.ones(()) if transform is jax.grad else jnp.ones(3)
    inline, plain = (  # Their operations: how a program's text is laid out is up to JAX.
        re.findall(r"stablehlo\.(?!constant)\w+|call", jax.jit(transform(f)).lower(x).as_text())
        for f in (jax_tools.jit_inline(twice_added), twice_added)
    )
    assert "stablehlo.add" in plain
    assert inline == plain


@pytest.mark.parametrize("transform", [jax.jit, eqx.filter_jit, jax.vmap])
def test_a_method_is_a_method(transform):
    class Adder(eqx.Module):
        times: int = eqx.field(static=True)

        @jax_tools.jit_inline
        def added(self, x):
            """Adds."""
            return twice_added(x, self.times)

    assert Adder(3).added.__doc__ == "Adds."
    x = np.ones(2, np.float32)
    assert (transform(Adder(3).added)(x) == twice_added(x, 3)).all()


class Unplayed(HackMatrix):
    """The game; nothing of it has been compiled by other tests."""


@pytest.mark.slow
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


@jax.jit
def chosen(x):
    return jax_tools.by_platform(lambda x: x, lambda x: -x, x)


def test_a_program_is_for_the_default_device_unless_it_is_said():
    assert _programs.default_platform() == "cpu"  # as all tests run
    assert chosen(1) == 1
    for platform, result in (("tpu", -1), ("cpu", 1), ("gpu", -1)):
        with jax_tools.for_platform(platform):
            assert chosen(1) == result  # It was traced before, for another.
    assert chosen(1) == 1


def test_for_the_platform_of_the_default_device_nothing_is_traced_again():
    traced = []
    function = jax.jit(lambda x: traced.append(x) or x)
    function(1)
    with jax_tools.for_platform("cpu"):
        function(1)
    assert len(traced) == 1


@pytest.mark.parametrize("batch", [1, 300])
def test_what_is_short_runs_for_all_elsewhere(batch):
    rng = np.random.default_rng(0)
    predicate, x = rng.random(batch) < 0.3, np.float32(rng.normal(size=(batch, 2)))

    def double(operand):
        (y, _), z = operand
        return y * 2, z + 1

    def run(predicate, x, shared):
        # The first array is changed in place on a CPU.
        return jax_tools.rarely(predicate, double, ((x, shared), x), (x, -x), short=True)

    expected = np.where(predicate[:, None], (2 * x, x + 1), (x, -x))
    in_chunks = batch > 16
    for platform, loops in (("cpu", int(in_chunks)), ("tpu", 0)):
        with jax_tools.for_platform(platform):
            # Another function each time: JAX does not trace one twice.
            program = jax.jit(jax.vmap(lambda *args: run(*args)))
            lowered = program.lower(predicate, x, np.ones((batch, 3), np.float32))
        assert lowered.as_text().count("stablehlo.while") == loops
        got = lowered.compile()(predicate, x, np.ones((batch, 3), np.float32))
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("shape", [(5,), (4, 3, 7)])
def test_many_random_numbers_are_those_that_jax_gives(shape):
    key = jax.random.key(3)
    found, expected = _programs.split_key(key, *shape), jax.random.split(key, shape)
    assert found.shape == shape
    np.testing.assert_array_equal(*map(jax.random.key_data, (found, expected)))
    np.testing.assert_array_equal(_programs.random_bits(key, *shape), jax.random.bits(key, shape))

"""A single environment takes an action as a whole number of any kind, and nothing else."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from hackmatrix import HackMatrix
from ppo_mask.envs import MultiTask, TimeLimit, probes
from ppo_mask.games import Seat
from ppo_mask.networks import MaskedCategorical


def adapter(library, name, *args):
    def make():
        pytest.importorskip(library, reason=f"pip install 'ppo-mask[{library}]'")
        module = importlib.import_module(f"ppo_mask.adapters.{library}")
        return getattr(module, name)(*args)

    return make


def opponent(observation, mask, key):
    return jnp.argmax(mask)


PROBES = {
    "ConstantValue": probes.ConstantValue,
    "ObservationValue": probes.ObservationValue,
    "ActionValue": probes.ActionValue,
    "MatchObservation": probes.MatchObservation,
    "Discounting": probes.Discounting,
    "EndlessOrOver": lambda: probes.EndlessOrOver(truncates=True),
    "MaskedLocks": probes.MaskedLocks,
    "RememberedCue": lambda: probes.RememberedCue(delay=2),
    "TimeLimit": lambda: TimeLimit(probes.MaskedLocks(), 3),
    "MultiTask": lambda: MultiTask([probes.ActionValue(), probes.ConstantValue()]),
}
ENVS = PROBES | {
    "HackMatrix": HackMatrix,
    "gymnax": adapter("gymnax", "GymnaxEnv", "CartPole-v1"),
    "jumanji": adapter("jumanji", "JumanjiEnv", "Snake-v1"),
    "navix": adapter("navix", "NavixEnv", "Navix-Empty-5x5-v0"),
    "pgx": lambda: Seat(adapter("pgx", "PgxGame", "tic_tac_toe")(), opponent),
}
INTEGERS = [1, np.uint8(1), np.array(1)]
WRONG = [1.0, np.float32(1), jnp.float32(1), np.ones(2, int), jnp.ones((1,), jnp.int32)]


def assert_takes_whole_numbers(step, *args, kinds=INTEGERS):
    """By types alone: nothing is compiled."""

    def types(action):
        leaves, structure = jax.tree.flatten(
            jax.eval_shape(lambda *args: step(*args, action), *args)
        )
        return structure, [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves]

    wanted = types(jnp.int32(1))
    for action in kinds:
        assert types(action) == wanted
    for action in WRONG:
        with pytest.raises(TypeCheckError, match="parameter 'action'"):
            types(action)


@pytest.mark.parametrize(
    "name", [*PROBES, *(pytest.param(x, marks=pytest.mark.slow) for x in ENVS if x not in PROBES)]
)
def test_step_takes_whole_numbers_of_any_kind(name):
    env, key = ENVS[name](), jax.random.key(0)
    state, _ = jax.eval_shape(env.reset, key)
    kinds = INTEGERS if name in PROBES else INTEGERS[1:2]  # Tracing these takes long.
    assert_takes_whole_numbers(env.step, key, state, kinds=kinds)
    if name == "HackMatrix":
        assert_takes_whole_numbers(env.step_and_reset, key, key, state, kinds=kinds)


def test_integers_of_all_kinds_lead_to_the_same_step():
    env, key = probes.MaskedLocks(), jax.random.key(0)
    state, _ = env.reset(key)
    wanted = env.step(key, state, jnp.int32(1))
    for action in INTEGERS:
        jax.tree.map(np.testing.assert_array_equal, env.step(key, state, action), wanted)


def test_log_prob_takes_an_integer():
    distribution = MaskedCategorical(jnp.arange(4.0), jnp.arange(4) > 0)
    assert_takes_whole_numbers(distribution.log_prob)
    assert distribution.log_prob(np.uint8(1)) == distribution.log_prob(jnp.int32(1))

"""A single environment takes an action as a whole number of any kind, and nothing else."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from hackmatrix import HackMatrix
from ppo_mask.envs import FlatObservation, MultiTask, TimeLimit, probes
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
    "FlatObservation": lambda: FlatObservation(probes.MaskedLocks()),
    "MultiTask": lambda: MultiTask([probes.ActionValue(), probes.ConstantValue()]),
}
ENVS = PROBES | {
    "HackMatrix": HackMatrix,
    "gymnax": adapter("gymnax", "GymnaxEnv", "CartPole-v1"),
    "jumanji": adapter("jumanji", "JumanjiEnv", "Snake-v1"),
    "navix": adapter("navix", "NavixEnv", "Navix-Empty-5x5-v0"),
    "pgx": adapter("pgx", "PgxEnv", "tic_tac_toe", opponent),
}
INTEGERS = [1, np.int64(1), np.uint8(1), np.array(1)]
WRONG = [1.0, np.float32(1), jnp.float32(1), np.ones(2, int), jnp.ones((1,), jnp.int32)]


def described(step, *args):
    """What a call returns, by its types alone: nothing is compiled."""
    leaves, structure = jax.tree.flatten(jax.eval_shape(step, *args))
    return structure, [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves]


def started(make):
    env, key = make(), jax.random.key(0)
    return env, key, jax.eval_shape(env.reset, key)[0]


@pytest.mark.parametrize("make", ENVS.values(), ids=ENVS)
def test_step_takes_integers_of_python_and_numpy(make):
    env, key, state = started(make)
    wanted = described(lambda *args: env.step(*args, jnp.int32(1)), key, state)
    for action in INTEGERS:
        assert described(lambda *args, a=action: env.step(*args, a), key, state) == wanted


@pytest.mark.parametrize("make", ENVS.values(), ids=ENVS)
def test_step_refuses_other_actions_by_their_name(make):
    env, key, state = started(make)
    for action in WRONG:
        with pytest.raises(TypeCheckError, match="parameter 'action'"):
            jax.eval_shape(lambda *args, a=action: env.step(*args, a), key, state)


@pytest.mark.parametrize("make", PROBES.values(), ids=PROBES)
def test_integers_of_all_kinds_lead_to_the_same_step(make):
    env, key = make(), jax.random.key(0)
    state, _ = env.reset(key)
    wanted = env.step(key, state, jnp.int32(1))
    for action in INTEGERS:
        jax.tree.map(np.testing.assert_array_equal, env.step(key, state, action), wanted)


def test_step_and_reset_takes_an_integer():
    env, key, state = started(HackMatrix)
    wanted = described(lambda *args: env.step_and_reset(key, *args, jnp.int32(1)), key, state)
    for action in INTEGERS:
        got = described(lambda *args, a=action: env.step_and_reset(key, *args, a), key, state)
        assert got == wanted
    with pytest.raises(TypeCheckError, match="parameter 'action'"):
        jax.eval_shape(lambda *args: env.step_and_reset(key, *args, 1.0), key, state)


def test_log_prob_takes_an_integer():
    distribution = MaskedCategorical(jnp.arange(4.0), jnp.arange(4) > 0)
    wanted = distribution.log_prob(jnp.int32(1))
    for action in INTEGERS:
        assert distribution.log_prob(action) == wanted
    for action in WRONG:
        with pytest.raises(TypeCheckError, match="parameter 'action'"):
            distribution.log_prob(action)

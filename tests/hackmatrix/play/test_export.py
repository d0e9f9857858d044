"""docs/export.md's program, which has NumPy only, plays exported networks as JAX does."""

import re
import subprocess
import sys
import types
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recordings
from games import ENV
from hackmatrix import positions
from hackmatrix.networks import BoardActorCritic, PlayerCenteredMLP
from hackmatrix.networks.features import features, unpack
from hackmatrix.observation import TimeAwareObservation, compress
from hackmatrix.play.export import export_policy
from ppo_mask.networks import add_normalization, update_statistics

PAGE = Path(__file__).parents[3] / "docs" / "export.md"
NUMBER = 1000


@pytest.fixture(scope="module")
def program():
    """The page's program."""
    (text,) = re.findall(r"```python\n(# numpy_policy.py.*?)```", PAGE.read_text(), re.DOTALL)
    module = types.ModuleType("numpy_policy")
    exec(text, module.__dict__)
    module.text = text
    return module


@pytest.fixture(scope="module")
def seen():
    """Observations of recorded positions, and their masks."""
    starts = [case["state"] for case in recordings.read("cases.jsonl.gz")]
    states = positions.load_all(starts[:: len(starts) // NUMBER][:NUMBER])
    observe = jax.jit(jax.vmap(lambda state: (ENV.observe(state), ENV.action_mask(state))))
    observations, masks = jax.device_get(observe(states))
    assert len(observations) == NUMBER
    # An empty mask does not come to a policy; see docs/hackmatrix.md.
    return observations, masks | ~masks.any(axis=-1, keepdims=True)


@pytest.fixture(scope="module", params=["plain", "normalized"])
def network(request, seen):
    """Weights of every layer are random, the last one's large enough to have preferences."""
    model = PlayerCenteredMLP(32, 2, key=jax.random.key(1))
    leaves, structure = jax.tree.flatten(eqx.filter(model, eqx.is_array))
    keys = jax.random.split(jax.random.key(2), len(leaves))
    noisy = [x + 0.3 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    model = eqx.combine(jax.tree.unflatten(structure, noisy), model)
    if request.param == "plain":
        return model
    observations = jnp.asarray(seen[0])
    model = add_normalization(model, observations)
    kept = jax.jit(jax.vmap(model.features))(observations)
    return update_statistics(model, kept.reshape(10, -1, kept.shape[-1]))


def test_the_features_are_the_same(program, seen):
    ours = jax.jit(jax.vmap(lambda x: unpack(features(x).packed())))(seen[0])
    theirs = np.stack([program.features(x) for x in seen[0]])
    np.testing.assert_allclose(theirs, ours, atol=1e-6)


def test_it_takes_the_same_greedy_actions(program, seen, network, tmp_path):
    path = tmp_path / "policy.npz"
    path.write_bytes(export_policy(network))
    policy = program.Policy(path)

    @jax.jit
    @jax.vmap
    def ours(observation, mask):
        distribution, value = network(observation, mask)
        return distribution.mode(), value

    actions, values = jax.device_get(ours(*seen))
    theirs = [policy(observation, mask) for observation, mask in zip(*seen, strict=True)]
    assert actions.tolist() == theirs
    assert len(set(theirs)) > 15
    theirs = [policy.value(observation) for observation in seen[0]]
    np.testing.assert_allclose(theirs, values, rtol=1e-3, atol=1e-3)


def test_it_plays_shared_layers_and_heeds_the_time(program, seen, tmp_path):
    model = PlayerCenteredMLP(32, 2, shared_layers=1, time_aware=True, key=jax.random.key(1))
    path = tmp_path / "policy.npz"
    path.write_bytes(export_policy(model))
    policy = program.Policy(path)

    @jax.jit
    @partial(jax.vmap, in_axes=(0, 0, None))
    def ours(observation, mask, steps):
        seen = TimeAwareObservation(compress(observation), steps)
        return model(seen, mask)[1]

    for steps in (0, 500, 5000):
        values = [policy.value(observation, steps) for observation in seen[0]]
        np.testing.assert_allclose(values, ours(*seen, jnp.uint16(steps)), rtol=1e-3, atol=1e-3)


def test_it_needs_numpy_only(program, network, tmp_path):
    (tmp_path / "policy.npz").write_bytes(export_policy(network))
    (tmp_path / "numpy_policy.py").write_text(program.text)
    play = (
        "import sys, numpy as np; from numpy_policy import Policy; "
        "x = np.zeros(1545, np.float32); x[33 + 40] = 1; "
        "print(Policy('policy.npz')(x, np.arange(28) == 4)); "
        "assert not {'jax', 'ppo_mask', 'hackmatrix'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", play], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr


@pytest.mark.slow
def test_arrays_are_not_pickled(network, tmp_path):
    (tmp_path / "policy.npz").write_bytes(export_policy(network))
    with np.load(tmp_path / "policy.npz", allow_pickle=False) as file:
        assert all(x.dtype == np.float32 for name, x in file.items() if name != "description")


def test_it_says_that_it_does_not_play_the_board_network(program, tmp_path):
    model = BoardActorCritic(4, 1, key=jax.random.key(0))
    path = tmp_path / "board.npz"
    path.write_bytes(export_policy(model))
    with pytest.raises(
        ValueError, match=r"board\.npz does not hold the default network, but .*BoardActorCritic"
    ):
        program.Policy(path)
    with np.load(path) as file:
        weight = file["network.codes.own.weight"]
    np.testing.assert_array_equal(weight, model.network.codes.own.weight)

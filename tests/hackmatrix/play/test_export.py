"""examples/numpy_policy.py, which has NumPy only, plays exported networks as JAX does."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix import HackMatrix
from hackmatrix.actions import ACTION_NAMES
from hackmatrix.networks import board_network, player_centered_mlp
from hackmatrix.networks.features import features, unpack
from hackmatrix.observation import TimeAwareObservation, observation_layout
from own_process import python
from ppo_mask import export_policy
from ppo_mask.networks import add_normalization, update_statistics
from recorded import noisy, row, views
from source import ROOT, load

PROGRAM = ROOT / "examples" / "numpy_policy.py"


@pytest.fixture(scope="module")
def program():
    return load("examples/numpy_policy.py")


@pytest.fixture(scope="module")
def seen():
    """Observations of recorded positions, and their masks."""
    # An empty mask does not come to a policy; see docs/hackmatrix.md.
    masks = views().mask | ~views().mask.any(axis=-1, keepdims=True)
    return views().flat[:200], masks[:200]


@pytest.fixture(scope="module")
def network():
    return noisy(player_centered_mlp(8, 2, key=jax.random.key(1)))


def read(path):
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    return json.loads(str(arrays.pop("description"))), arrays


def saved(model, folder):
    path = folder / "policy.npz"
    export_policy(model, HackMatrix(), path)
    return path


def test_names_architecture_and_layout_are_written(network, tmp_path):
    description, arrays = read(saved(network, tmp_path))
    assert len(arrays) == len(jax.tree.leaves(network))
    assert all(x.dtype == np.float32 for x in arrays.values())
    (weight,) = [x for name, x in arrays.items() if name.endswith("actor.0.weight")]
    assert weight.shape[0] == 8
    assert description["architecture"]["hyperparameters"]["reader"]["network"] == "PlayerCentered"
    assert description["actions"] == list(ACTION_NAMES)
    layout = observation_layout()
    assert layout["size"] == 10 + 23 + 36 * 42
    assert (len(layout["player"]), len(layout["programs"])) == (10, 23)
    names = [name for name, _ in layout["channels"]]
    assert len(names) == len(set(names)) == 42
    assert (names[0], names[3], names[4]) == ("enemy_type virus", "enemy_type cryptog", "enemy_hp")
    assert names[12:14] == ["program PUSH", "program PULL"]
    assert names[39:] == ["pickup", "exit", "center"]


def test_the_features_are_the_same(program, seen):
    ours = jax.jit(jax.vmap(lambda x: unpack(features(x).packed())))(seen[0])
    theirs = np.stack([program.features(x) for x in seen[0]])
    np.testing.assert_allclose(theirs, ours, atol=1e-6)


@pytest.mark.parametrize("normalized", [False, True])
def test_it_takes_the_same_greedy_actions(program, seen, network, tmp_path, normalized):
    if normalized:
        network = add_normalization(network, jnp.asarray(seen[0]))
        kept = jax.jit(jax.vmap(network.reader.features))(seen[0])
        network = update_statistics(network, kept.reshape(10, -1, kept.shape[-1]))
    policy = program.Policy(saved(network, tmp_path))

    @jax.jit
    @jax.vmap
    def ours(observation, mask):
        distribution, value = network(observation, mask)
        return distribution.mode(), value

    actions, values = jax.device_get(ours(*seen))
    theirs = [policy(observation, mask) for observation, mask in zip(*seen, strict=True)]
    assert actions.tolist() == theirs
    assert len(set(theirs)) > 15
    theirs = [policy.value(*each) for each in zip(*seen, strict=True)]
    np.testing.assert_allclose(theirs, values, rtol=1e-3, atol=1e-3)


def test_it_plays_shared_layers_and_heeds_the_time(program, seen, tmp_path):
    model = player_centered_mlp(8, 2, shared_layers=1, time_aware=True, key=jax.random.key(1))
    policy = program.Policy(saved(model, tmp_path))
    steps = np.resize(np.array([0, 500, 5000], np.uint16), 60)

    @jax.jit
    @jax.vmap
    def ours(seen, steps, mask):
        return model(TimeAwareObservation(seen, steps), mask)[1]

    few = slice(60)
    values = ours(row(views().compact, few), steps, seen[1][few])
    given = zip(seen[0][few], seen[1][few], steps, strict=True)
    theirs = [policy.value(x, mask, int(n)) for x, mask, n in given]
    np.testing.assert_allclose(theirs, values, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_onnxruntime_computes_the_features_too(seen, network, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    export_policy(network, HackMatrix(), tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    given = dict(zip(("observation", "action_mask"), seen, strict=True))
    actions = jax.vmap(lambda *x: network(*x)[0].mode())(*seen)
    assert session.run(["action"], given)[0].tolist() == actions.tolist()


def test_it_needs_numpy_only(network, tmp_path):
    saved(network, tmp_path)
    (tmp_path / "numpy_policy.py").write_text(PROGRAM.read_text())
    play = (
        "import sys, numpy as np; from numpy_policy import Policy; "
        "x = np.zeros(1545, np.float32); x[33 + 40] = 1; "
        "print(Policy('policy.npz')(x, np.arange(28) == 4)); "
        "assert not {'jax', 'ppo_mask', 'hackmatrix'} & set(sys.modules)"
    )
    assert python("-c", play, folder=tmp_path).stdout == "4\n"


def test_it_says_that_it_does_not_play_the_board_network(program, tmp_path):
    model = board_network(8, 1, key=jax.random.key(0))
    path = saved(model, tmp_path)
    with pytest.raises(
        ValueError, match=r"policy\.npz does not hold a network of the library, but .*BoardReader"
    ):
        program.Policy(path)
    np.testing.assert_array_equal(
        read(path)[1]["network.codes.own.weight"], model.network.codes.own.weight
    )

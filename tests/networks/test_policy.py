"""What a policy by itself can be given."""

import copy
import pickle
import sys
from collections import Counter, OrderedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm

POLICY = pm.Policy(pm.MLPActorCritic(2, 3, 4, key=jax.random.key(0)))
SEEN = jnp.array([0.5, -2.0])
KEY = jax.random.key(1)


@pytest.mark.parametrize(
    "mask",
    [
        np.array([0, 1, 0], np.int8),
        np.array([False, True, False]),
        jnp.array([0, 1, 0]),
        [False, True, False],
        [0, 1, 0],
        (False, True, False),
    ],
)
def test_masks_of_ones_and_zeros_and_lists_will_do(mask) -> None:
    assert int(POLICY(SEEN, mask)) == 1
    assert int(POLICY.sample(np.asarray(SEEN), mask, jax.random.key(1))) == 1
    assert int(POLICY.act(SEEN, mask, ())[0]) == 1


def test_observations_may_be_lists_of_numbers() -> None:
    wanted = POLICY.model(SEEN, jnp.ones(3, bool))[0].mode()
    other = POLICY.model(-SEEN, jnp.ones(3, bool))[0].mode()
    assert wanted != other
    for seen in ([0.5, -2.0], [0.5, -2], np.array([0.5, -2.0]), [[0.5], [-2]]):
        assert POLICY(seen, jnp.ones(3, bool)) == wanted


@pytest.mark.parametrize(
    ("seen", "mask", "message"),
    [
        (jnp.ones((5, 2)), jnp.ones((5, 3), bool), r"acts on one observation; jax.vmap\(policy\)"),
        (SEEN, [0, 2], "must be of True and False or of 1 and 0"),
        (SEEN, np.ones(3, np.float32), r"action_mask is float32\[3\], not bool"),
        (SEEN, None, "action_mask is object"),
        ("left", [1, 1, 1], "the observation has a str"),
    ],
)
def test_what_does_not_fit_is_one_line(seen, mask, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        POLICY(seen, mask)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("num_actions", [3, (1, 2)])
def test_a_mask_that_allows_nothing_is_refused(num_actions) -> None:
    policy = pm.Policy(pm.MLPActorCritic(2, num_actions, 4, key=jax.random.key(0)))
    mask = jnp.array([isinstance(num_actions, tuple), False, False])
    key, message = jax.random.key(1), "the action mask allows no action"
    for act in (policy, lambda *x: policy.act(*x, ()), lambda *x: policy.sample(*x, key)):
        with pytest.raises(ValueError, match=message):
            act(SEEN, mask)
        # Nothing can be known in compiled code.
        eqx.filter_eval_shape(jax.vmap(act), SEEN[None], mask[None])


def test_many_observations_are_for_vmap() -> None:
    masks = np.eye(3, dtype=np.int8)
    assert jax.vmap(POLICY)(jnp.tile(SEEN, (3, 1)), masks).tolist() == [0, 1, 2]


def test_ordered_dictionaries_are_as_plain_ones() -> None:
    """JAX flattens them in the order in which they were written, and plain ones by name."""
    plain = {"a": SEEN[:1], "z": SEEN[1:], "of": {"b": SEEN, "y": 2 * SEEN}}
    inner = OrderedDict(y=2 * SEEN, b=SEEN)
    ordered = OrderedDict(z=plain["z"], of=inner, a=plain["a"])
    model = pm.MLPActorCritic(6, 3, 4, key=jax.random.key(0))
    mask = jnp.ones(3, bool)
    value = jax.jit(lambda seen: model(seen, mask)[1])
    assert value(ordered) == value(plain)
    key = jax.random.key(2)
    assert pm.Policy(model).sample(ordered, mask, key) == pm.Policy(model).sample(plain, mask, key)
    timestep = pm.TimeStep(ordered, mask, 0.0, False, False, {})
    assert jax.tree.structure(timestep.observation) == jax.tree.structure(plain)


@pytest.mark.parametrize("key", [1, None, np.zeros(2, np.uint32), jax.random.split(KEY, 2)])
def test_a_key_that_is_none_is_one_line(key) -> None:
    wanted = r"parameter 'key' is .*, not Key\[Array, ''\]; jax\.random\.key\(0\) makes one"
    with pytest.raises(TypeError, match=wanted) as got:
        POLICY.sample(SEEN, [1, 1, 1], key)
    assert "\n" not in str(got.value)


@pytest.mark.parametrize("seen", [np.ones(2, np.float32), SEEN, {"a": (SEEN[:1], {"b": SEEN[1:]})}])
def test_an_action_takes_little_time_in_python(seen) -> None:
    """Counted in calls of functions: a check of types in each would take hundreds more."""
    recurrent = pm.Policy(pm.GRUActorCritic(2, 3, 4, key=KEY))
    hidden, mask = recurrent.initial_hidden(), np.ones(3, bool)
    for act in (
        lambda: POLICY(seen, mask),
        lambda: POLICY.sample(seen, mask, KEY),
        lambda: recurrent.act(seen, mask, hidden),
    ):
        act()
        calls = Counter()
        sys.setprofile(lambda _, event, __, calls=calls: calls.update([event]))
        act()
        sys.setprofile(None)
        assert calls["call"] < 100


def test_policies_of_one_network_share_a_program_and_can_be_copied() -> None:
    mask = jnp.ones(3, bool)
    other = pm.Policy(pm.MLPActorCritic(2, 3, 4, key=KEY))
    wanted = int(other.model(SEEN, mask)[0].mode())
    POLICY(SEEN, mask)
    copies = other, copy.deepcopy(other), pickle.loads(pickle.dumps(other))
    with jax.no_tracing():
        assert [int(policy(SEEN, mask)) for policy in copies] == [wanted] * 3
    turned = eqx.tree_at(lambda p: p.model.network.actor[-1].weight, other, replace_fn=jnp.negative)
    assert turned(SEEN, mask) != wanted
    assert jax.tree.structure(other) == jax.tree.structure(copy.deepcopy(other))
    assert eqx.filter_jit(other.act)(SEEN, mask, ())[0] == wanted

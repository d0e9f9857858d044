"""A policy by itself: saved, loaded, refused."""

import collections
import decimal
import enum
import json
import math
import signal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.checkpoints import Checkpoint
from ppo_mask.errors import RunError
from ppo_mask.networks import add_normalization, as_model, to_bfloat16

ENV = pm.envs.probes.MaskedLocks(keys=4)
MLP = pm.network_for(ENV, "mlp", hidden_dim=8, key=jax.random.key(0))
GRU = pm.GRUActorCritic(1, 8, 4, key=jax.random.key(0))
SEVERAL = pm.GRUActorCritic(1, (3, 5), 4, key=jax.random.key(0))


class Constant(pm.AbstractActorCritic):
    """Always the same logits."""

    logits: jax.Array
    options: Any = eqx.field(static=True)

    def __init__(self, num_actions: int = 8, options: Any = None, *, key: jax.Array) -> None:
        self.logits = jax.random.normal(key, (num_actions,))
        self.options = options

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return {"num_actions": self.logits.size, "options": self.options}

    def __call__(self, observation: Any, action_mask: Any) -> tuple[pm.MaskedCategorical, Any]:
        return pm.MaskedCategorical(self.logits, action_mask), jnp.zeros(())


class Ensemble(Constant):
    """Holds networks in a tuple."""

    members: Any

    def __init__(self, members: Any, *, key: jax.Array) -> None:
        super().__init__(key=key)
        self.members = members

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return {"members": self.members}


ENSEMBLE = Ensemble((MLP, {"other": [GRU]}), key=jax.random.key(0))
CONSTANT = Constant(key=jax.random.key(1))
WRAPPED = to_bfloat16(add_normalization(MLP, jnp.ones((3, 1))))


@pytest.mark.parametrize("model", [MLP, GRU, SEVERAL, WRAPPED, CONSTANT, ENSEMBLE])
def test_saved_policy_comes_back_bit_for_bit(model: Any, tmp_path: Path) -> None:
    pm.save_policy(model, tmp_path / "new" / "policy")
    path = str(tmp_path / "new" / "policy")
    loaded = pm.load_policy(path, networks=[Constant, Ensemble]).model
    model = as_model(model)
    assert jax.tree.structure(loaded) == jax.tree.structure(model)
    jax.tree.map(np.testing.assert_array_equal, loaded, model)
    names = Checkpoint.read(tmp_path / "new" / "policy").about["arrays"]
    assert {name[:6] for name in names} == {"model."}
    assert len(names) == len(jax.tree.leaves(eqx.filter(model, eqx.is_array)))


@pytest.mark.parametrize("take", [partial(pm.save_policy, CONSTANT), Path.mkdir, Path.touch])
def test_save_policy_overwrites_nothing(take: Any, tmp_path: Path) -> None:
    path = tmp_path / "there"
    take(path)
    before = sorted(path.rglob("*"))
    with pytest.raises(RunError, match=r"there is something at .* already; a policy needs a new"):
        pm.save_policy(MLP, path)
    assert sorted(path.rglob("*")) == before


def test_save_policy_refuses_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="to a local folder, not to memory://bucket/policy"):
        pm.save_policy(MLP, "memory://bucket/policy")
    assert not list(tmp_path.iterdir())


FAITHFUL: list[Any] = [
    None, True, 3, -0.0, 1e-320, 10**30, math.inf, -math.inf, "text\n\ud800", "", (), [], {},
    (1, (2, [3])), [(), None], {"a": {"b": ()}}, {"network": 1},
]  # fmt: skip


NUMPY: list[tuple[Any, Any]] = [
    (np.int64(3), 3), (np.uint8(3), 3), (np.float32(0.1), float(np.float32(0.1))),
    (np.float64(0.1), 0.1), (np.bool_(True), True), ((np.int32(1),), (1,)), (np.str_("a"), "a"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "plain"), [*((x, x) for x in FAITHFUL), *NUMPY], ids=repr)
def test_hyperparameters_come_back_as_pythons_own(options: Any, plain: Any, tmp_path: Path) -> None:
    pm.save_policy(Constant(options=options, key=jax.random.key(0)), tmp_path / "policy")
    loaded: Any = pm.load_policy(tmp_path / "policy", networks=[Constant]).model.network
    assert repr(loaded.hyperparameters) == repr({"num_actions": 8, "options": plain})


class Color(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: int


class Text(str):
    pass


REFUSED: list[Any] = [
    jnp.tanh, len, lambda x: x, partial(len, "a"), jnp.float32, np.dtype("int8"), int,
    Color.RED, signal.SIGINT, Point(1), Text("a"), Path("a"), b"a", {1}, frozenset(), range(3),
    1j, np.complex64(1), np.longdouble(1), np.datetime64("2020"), np.ones(2), object(), ...,
    collections.OrderedDict(a=1), collections.defaultdict(int), decimal.Decimal(1), {1: 2},
    {"tuple": [1]},
]  # fmt: skip


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_what_cannot_be_stored_is_refused_by_name(
    value: Any, wrapped: bool, tmp_path: Path
) -> None:
    options, name = ({"a": [value]}, "options['a'][0]") if wrapped else (value, "options")
    model = Constant(options=options, key=jax.random.key(0))
    with pytest.raises(ValueError, match="hyperparameters of Constant cannot be saved") as caught:
        pm.save_policy(model, tmp_path / "policy")
    assert f"cannot be saved: {name} is {' '.join(repr(value).split())[:80]}" in str(caught.value)
    assert "; numbers, text, True, False, None, networks, and lists" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


class Forgetful(Constant):
    """Says too little of itself, or something else."""

    @property
    def hyperparameters(self) -> Any:
        return self.options


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({}, "network.logits is float32[8], not float32[5]"),
        ({"num_actions": 5, "color": 1}, "TypeError: "),
        ({"num_actions": 0.5}, ""),
        ({1: 5}, "TypeError: "),
        (None, "cannot be saved: the whole is None"),
    ],
)
def test_hyperparameters_must_make_the_network_again(
    said: Any, reason: str, tmp_path: Path
) -> None:
    model = Forgetful(5, said, key=jax.random.key(0))
    with pytest.raises(ValueError, match="the hyperparameters of Forgetful ") as caught:
        pm.save_policy(model, tmp_path / "policy")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


class Shaped(Constant):
    """Its logits are bent by what shapes no array."""

    bend: Any
    scale: float = eqx.field(static=True)

    def __init__(self, bend: Any = jnp.tanh, scale: float = 1.0, *, key: jax.Array) -> None:
        super().__init__(key=key)
        self.bend, self.scale = bend, scale

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((jnp.sin,), "network.bend is <PjitFunction of "),
        ((lambda x: 2 * x,), "network.bend is <PjitFunction of "),
        ((jnp.tanh, 2.0), "network.scale is 1.0, not 2.0"),
    ],
)
def test_what_shapes_no_array_is_not_forgotten(given: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="do not make such a network again: ") as caught:
        pm.save_policy(Shaped(*given, key=jax.random.key(0)), tmp_path / "policy")
    assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


class Closed(Constant):
    """Makes a function of its own each time, of the same code."""

    bend: Any

    def __init__(self, power: int = 2, *, key: jax.Array) -> None:
        super().__init__(key=key)
        self.bend = lambda x: x**power

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return {}


def test_functions_of_equal_code_and_values_are_the_same(tmp_path: Path) -> None:
    pm.save_policy(Closed(key=jax.random.key(0)), tmp_path / "policy")
    with pytest.raises(ValueError, match=r"network\.bend is <function"):
        pm.save_policy(Closed(3, key=jax.random.key(0)), tmp_path / "other")


def test_load_policy_names_a_missing_folder_and_an_unknown_class(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"there is no checkpoint .*/policy"):
        pm.load_policy(tmp_path / "policy")
    pm.save_policy(CONSTANT, tmp_path / "policy")
    with pytest.raises(RunError, match="is of the network Constant; give its class to load_policy"):
        pm.load_policy(tmp_path / "policy")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nope": 1}, r"MLPActorCritic\(.*nope=1\).* again: TypeError: got an unexpected .*'nope'"),
        ({"hidden_dim": "x"}, r"again: WrongType: MLPActorCritic: parameter 'hidden_dim' is 'x'"),
        (None, "has no architecture"),
    ],
)
def test_a_network_that_its_class_does_not_make_is_one_line(
    change: Any, message: str, tmp_path: Path
) -> None:
    pm.save_policy(pm.MLPActorCritic(3, 2, 4, key=jax.random.key(0)), tmp_path / "policy")
    file = tmp_path / "policy" / "description.json"
    about = json.loads(file.read_text())
    if change is None:
        del about["architecture"]
    else:
        about["architecture"]["hyperparameters"]["network"]["hyperparameters"].update(change)
    file.write_text(json.dumps(about))
    with pytest.raises(RunError, match=rf"^checkpoint .*/policy .*{message}") as caught:
        pm.load_policy(tmp_path / "policy")
    assert "\n" not in str(caught.value)


def test_weights_of_before_a_hyperparameter_was_there(tmp_path: Path) -> None:
    model = as_model(pm.MLPActorCritic(3, 2, 4, key=jax.random.key(0)))
    pm.save_policy(model, tmp_path / "policy")
    saved = Checkpoint.read(tmp_path / "policy")
    network = saved.about["architecture"]["hyperparameters"]["network"]
    del network["hyperparameters"]["shared_layers"]

    fresh = as_model(pm.MLPActorCritic(3, 2, 4, key=jax.random.key(1)))
    loaded = pm.checkpoints.load_weights(saved, fresh)
    assert bool(eqx.tree_equal(loaded, model))
    other = as_model(pm.MLPActorCritic(3, 2, 4, shared_layers=1, key=jax.random.key(1)))
    with pytest.raises(RunError, match=r"is Model\(.*\); this run trains .*shared_layers=1"):
        pm.checkpoints.load_weights(saved, other)

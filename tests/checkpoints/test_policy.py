"""A policy by itself: saved, loaded, refused."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.errors import RunError
from ppo_mask.networks import add_normalization, to_bfloat16

ENV = pm.envs.probes.MaskedLocks(keys=4)
MLP = pm.MLPActorCritic.for_env(ENV, hidden_dim=8, key=jax.random.key(0))
GRU = pm.GRUActorCritic(1, 8, 4, key=jax.random.key(0))


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


CONSTANT = Constant(key=jax.random.key(1))
WRAPPED = to_bfloat16(add_normalization(MLP, jnp.ones((3, 1))))


@pytest.mark.parametrize("model", [MLP, GRU, WRAPPED, CONSTANT])
def test_saved_policy_comes_back_bit_for_bit(model: Any, tmp_path: Path) -> None:
    pm.save_policy(model, tmp_path / "new" / "policy")
    loaded = pm.load_policy(str(tmp_path / "new" / "policy"), networks=[Constant]).model
    assert jax.tree.structure(loaded) == jax.tree.structure(model)
    jax.tree.map(np.testing.assert_array_equal, loaded, model)


def test_saved_policy_holds_the_network_alone(tmp_path: Path) -> None:
    pm.save_policy(MLP, tmp_path / "policy")
    names = pm.checkpoints.read_description(tmp_path / "policy")["arrays"]
    assert "learner.model.actor.0.weight" in names
    assert len(names) == len(jax.tree.leaves(eqx.filter(MLP, eqx.is_array)))


@pytest.mark.parametrize("taken", ["policy", "folder", "file"])
def test_save_policy_overwrites_nothing(taken: str, tmp_path: Path) -> None:
    path = tmp_path / taken
    if taken == "policy":
        pm.save_policy(CONSTANT, path)
    elif taken == "folder":
        path.mkdir()
    else:
        path.write_text("mine")
    before = sorted(path.rglob("*"))
    with pytest.raises(RunError, match=r"there is something at .* already; a policy needs a new"):
        pm.save_policy(MLP, path)
    assert sorted(path.rglob("*")) == before


def test_save_policy_refuses_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="to a local folder, not to memory://bucket/policy"):
        pm.save_policy(MLP, "memory://bucket/policy")
    assert not list(tmp_path.iterdir())


def test_save_policy_refuses_what_json_cannot_hold(tmp_path: Path) -> None:
    model = Constant(options=jnp.tanh, key=jax.random.key(0))
    with pytest.raises(ValueError, match="hyperparameters of Constant cannot be saved") as caught:
        pm.save_policy(model, tmp_path / "policy")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_load_policy_asks_for_an_unknown_class(tmp_path: Path) -> None:
    pm.save_policy(CONSTANT, tmp_path / "policy")
    with pytest.raises(RunError, match="is of the network Constant; give its class to load_policy"):
        pm.load_policy(tmp_path / "policy")


def test_load_policy_names_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"there is no checkpoint .*/policy"):
        pm.load_policy(tmp_path / "policy")

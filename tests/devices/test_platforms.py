"""What a program is for is asked of its devices, not of the process."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from ppo_mask.devices.platforms import platform_of
from ppo_mask.devices.sharding import ENVS, mean_over_devices, mesh_of, shard_over_envs
from ppo_mask.training._minibatches import cache_sized_parts


def test_it_is_the_meshs_or_the_default_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert platform_of(mesh_of(jax.devices()[:1])) == "cpu"
    assert platform_of(None) == "gpu"
    for device in (jax.devices()[0], "cpu"):
        with jax.default_device(device):
            assert platform_of(None) == "cpu"


def test_minibatches_are_cut_for_what_the_program_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    rows, weights = jnp.zeros((2, 8192)), jnp.zeros((3, 256))
    cut: Any = cache_sized_parts(rows, weights, mesh_of(jax.devices()[:1]))
    assert cut.shape == (16, 1024)
    whole: Any = cache_sized_parts(rows, weights)
    assert whole.shape == (2, 8192)


def test_a_mesh_of_one_device_gives_the_program_of_no_mesh() -> None:
    def program(mesh: Any) -> str:
        def per_device(x: Any) -> Any:
            return mean_over_devices(mesh, x * 2)

        return str(jax.make_jaxpr(shard_over_envs(mesh, per_device, (0,), 0))(jnp.zeros(4)))

    assert program(mesh_of(jax.devices()[:1])) == program(None)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_mean_of_many_short_floats_is_not_lost_in_their_sum(dtype: str) -> None:
    mesh = mesh_of(jax.devices()[:1] * 1024)
    numbers = {"x": jnp.full(1024, 200, dtype)}
    of_each: Any = jax.vmap(lambda tree: mean_over_devices(mesh, tree), axis_name=ENVS)(numbers)
    assert of_each["x"].dtype == dtype
    assert (of_each["x"] == 200).all()

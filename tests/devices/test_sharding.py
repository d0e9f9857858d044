"""Training on several devices is training on one."""

import jax
import pytest

import on_devices
from own_process import printed_with
from ppo_mask.devices.sharding import make_mesh
from ppo_mask.networks import MLPActorCritic, as_model
from ppo_mask.ppo import PPO


@pytest.mark.optimized
@pytest.mark.parametrize(
    "what",
    ["all", "parts", *(pytest.param(x, marks=pytest.mark.nightly) for x in ("recurrent", "game"))],
)
def test_the_curve_is_that_of_one_device(what):
    by_count = printed_with(8, on_devices.__file__, what)
    one = by_count.pop("1")
    assert [line["update"] for line in one["lines"]] == [4, 8, 12, 16, 20]
    for count, several in by_count.items():
        assert several["environments"] == 16 // int(count)
        assert several["parameters"]
        assert several["compiled"] == 1
        for line, expected in zip(several["lines"], one["lines"], strict=True):
            assert line == pytest.approx(expected, abs=1e-4)


def test_no_more_devices_than_there_are():
    assert make_mesh(1) is None
    with pytest.raises(ValueError, match="num_devices must be from 1 to 1 here, got 2"):
        make_mesh(2)


@pytest.mark.parametrize(
    ("config", "devices", "message"),
    [
        ({"num_envs": 6}, 4, "6 environments cannot be split over 4 devices"),
        (
            {"num_envs": 8, "num_steps": 3, "num_minibatches": 6},
            8,
            "6 minibatches of 3 steps .* over 4 devices at most",
        ),
        (
            {"num_envs": 8, "num_steps": 4, "num_minibatches": 4, "gradient_accumulation": 4},
            8,
            "gradient_accumulation = 4 does not divide the minibatch .* on each of 8 devices = 1",
        ),
    ],
)
def test_an_uneven_split_is_refused_with_a_reason(config, devices, message):
    parts = PPO(**config), as_model(MLPActorCritic(1, 2, 1, 1, key=jax.random.key(0)))
    with pytest.raises(ValueError, match=message):
        parts[0].check(parts[1], devices)
    parts[0].check(parts[1], 1)

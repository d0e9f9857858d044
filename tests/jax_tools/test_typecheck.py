"""Wrong shapes and types name the argument; functions that are not called cost nothing."""

import traceback
from collections.abc import Callable
from typing import Any

import beartype.roar
import jax
import jax.numpy as jnp
import optax
import pytest
from jaxtyping import TypeCheckError

import ppo_mask as pm
import programs
from hackmatrix import HackMatrix
from own_process import python
from ppo_mask._typecheck import when_called
from ppo_mask.ppo import estimate_advantages
from ppo_mask.runner import Task


def advantages(**other: Any) -> Any:
    numbers, flags = jnp.zeros((3, 2)), jnp.zeros((3, 2), bool)
    arguments = {"reward": numbers, "value": numbers, "next_value": numbers}
    arguments |= {"terminated": flags, "truncated": flags}
    return estimate_advantages(**(arguments | other), gamma=0.9, gae_lambda=0.9)


ENV = programs.locks().env
MODEL = programs.locks().make_model(jax.random.key(0))
TRAINER = programs.locks().trainer
KEY = "not Key[Array, '']; jax.random.key(0) makes one"
AXES = "not Float[Array, 'steps envs'] where steps=3, envs=2"
MISTAKES = {
    "shape": (
        lambda: advantages(value=jnp.zeros((3, 4))),
        f"estimate_advantages: parameter 'value' is f32[3,4], {AXES}",
    ),
    "dimensions": (lambda: advantages(next_value=jnp.zeros(3)), f"'next_value' is f32[3], {AXES}"),
    "whole numbers": (lambda: advantages(reward=jnp.zeros((3, 2), int)), "'reward' is i32[3,2]"),
    "no flags": (lambda: advantages(truncated=jnp.zeros((3, 2))), "'truncated' is f32[3,2], not B"),
    "whole float": (
        lambda: TRAINER.algorithm.total_updates(1e5),  # pyright: ignore
        "'total_timesteps' is 100000.0, not int",
    ),
    "one callback": (
        lambda: TRAINER.train(programs.locks().start, 16, callbacks=pm.History()),  # pyright: ignore
        "'callbacks' is History(0 log lines, 0 steps), not Sequence[Callback]",
    ),
    "old key": (lambda: TRAINER.init(MODEL, jax.random.PRNGKey(0)), f"'key' is u32[2], {KEY}"),
    "number as key": (lambda: pm.evaluate(MODEL, ENV, 0, 2), f"'key' is 0, {KEY}"),  # pyright: ignore
    "key of for_env": (lambda: pm.network_for(ENV, "mlp", key=0), f"'key' is 0, {KEY}"),  # pyright: ignore
    "not called": (
        lambda: pm.Trainer(ENV, optax.adam),  # pyright: ignore
        "Trainer: parameter 'algorithm' is adam, not AbstractAlgorithm",
    ),
    "size": (lambda: pm.TimeLimit(ENV, "4"), "TimeLimit: parameter 'max_steps' is '4', not int"),  # pyright: ignore
    "task": (lambda: Task(ENV), "Task: parameter 'make_env' is MaskedLocks("),  # pyright: ignore
    "game": (lambda: HackMatrix(undo_depth="eight"), "undo_depth"),  # pyright: ignore
    "many": (lambda: pm.TimeLimit(ENV, "4" * 9999), "44..., not int"),  # pyright: ignore
}


def test_right_arguments_pass() -> None:
    assert advantages().shape == (3, 2)


@pytest.mark.parametrize("name", MISTAKES)
def test_arguments_of_a_wrong_type_are_one_line(name: str) -> None:
    call, message = MISTAKES[name]
    with pytest.raises(TypeCheckError) as caught:
        call()
    assert message in str(caught.value)
    assert len(traceback.format_exception(caught.value)) < 20
    assert "\n" not in str(caught.value)


def of_a_place(x: int, /, y: int = 1, *, z: int = 2) -> int:
    return x + y + z


def collecting(x: int, *numbers: int, z: int = 2, **others: int) -> int:
    return x + sum(numbers) + z + sum(others.values())


@pytest.mark.parametrize("function", [of_a_place, collecting])
def test_each_argument_with_a_name_is_checked(function: Callable[..., Any]) -> None:
    checked = when_called(function)
    for _ in range(2):
        assert checked(1, 2, z=3) == 6
        assert checked(1, y=2, z=3) == 6
        for places, names in [(("x",), {}), ((1,), {"z": "z"})]:
            with pytest.raises(TypeCheckError):
                checked(*places, **names)
    for places, names in [((1, "y"), {}), ((1,), {"y": "y"})]:
        with pytest.raises(TypeCheckError):
            when_called(of_a_place)(*places, **names)


def test_results_are_checked() -> None:
    def half(x: int) -> int:
        return x / 2  # pyright: ignore

    def nothing(x: int) -> None:
        return x  # pyright: ignore

    for function in (half, nothing):
        with pytest.raises(TypeCheckError, match=r"(half|nothing): the result is (0.5|1), not"):
            when_called(function)(1)


def test_nothing_is_made_before_the_call() -> None:
    def never(x: "NoSuchType") -> None:  # type: ignore[name-defined]
        del x

    checked = when_called(never)
    with pytest.raises(beartype.roar.BeartypeException):
        checked(1)


EVERYTHING = """
import importlib, pkgutil, sys
import beartype
import ppo_mask
ppo_mask._typecheck.when_called = beartype.beartype
import hackmatrix
assert "ppo_mask.envs" in sys.modules
count = 0
for package in (ppo_mask, hackmatrix):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
            count += 1
        except ModuleNotFoundError as error:
            assert error.name.partition(".")[0] not in ("ppo_mask", "hackmatrix"), error
print(count)
"""


@pytest.mark.optimized
def test_beartype_takes_every_annotation() -> None:
    """As it would have to if all were checked from the start."""
    assert int(python("-c", EVERYTHING).stdout) > 80

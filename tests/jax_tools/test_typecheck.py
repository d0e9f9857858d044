"""Wrong shapes and types name the argument; functions that are not called cost nothing."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import beartype.roar
import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from hackmatrix import HackMatrix
from ppo_mask._typecheck import when_called
from ppo_mask.ppo import estimate_advantages


def advantages(**other: Any) -> Any:
    numbers, flags = jnp.zeros((3, 2)), jnp.zeros((3, 2), bool)
    arguments = {"reward": numbers, "value": numbers, "next_value": numbers}
    arguments |= {"terminated": flags, "truncated": flags}
    return estimate_advantages(**(arguments | other), gamma=0.9, gae_lambda=0.9)


def test_arguments_that_fit_pass() -> None:
    assert advantages().shape == (3, 2)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("value", jnp.zeros((3, 4))),
        ("next_value", jnp.zeros(3)),
        ("reward", jnp.zeros((3, 2), jnp.int32)),
        ("truncated", jnp.zeros((3, 2))),
    ],
)
def test_a_wrong_shape_or_dtype_names_the_argument(name: str, wrong: Any) -> None:
    with pytest.raises(TypeCheckError, match=f"parameter '{name}'"):
        advantages(**{name: wrong})


def test_an_environment_is_checked_as_well() -> None:
    with pytest.raises(TypeCheckError, match="undo_depth"):
        HackMatrix(undo_depth="eight")  # pyright: ignore


def of_a_place(x: int, /, y: int = 1, *, z: int = 2) -> int:
    return x + y + z


def of_any_place(*numbers: int, **others: int) -> int:
    return sum(numbers) + sum(others.values())


@pytest.mark.parametrize("function", [of_a_place, of_any_place])
def test_each_argument_of_each_call_is_checked(function: Callable[..., Any]) -> None:
    checked = when_called(function)
    for _ in range(2):
        assert checked(1, 2, z=3) == 6
        assert checked(1, y=2, z=3) == 6
        for places, names in [(("x",), {}), ((1, "y"), {}), ((1,), {"y": "y"}), ((1,), {"z": "z"})]:
            with pytest.raises(beartype.roar.BeartypeCallHintViolation):
                checked(*places, **names)


def test_results_are_checked() -> None:
    def half(x: int) -> int:
        return x / 2  # pyright: ignore

    def nothing(x: int) -> None:
        return x  # pyright: ignore

    for function in (half, nothing):
        with pytest.raises(beartype.roar.BeartypeCallHintViolation):
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


@pytest.mark.slow
def test_beartype_takes_every_annotation() -> None:
    """As it would have to if all were checked from the start."""
    done = subprocess.run([sys.executable, "-c", EVERYTHING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 80

"""Every class and function of the face has an example in its docstring that works."""

import doctest
import inspect
import types

import pytest

import ppo_mask

NAMES = [
    name
    for name in ppo_mask.__all__
    if callable(value := getattr(ppo_mask, name)) and not isinstance(value, types.ModuleType)
]


def examples(name: str) -> list[doctest.Example]:
    docstring = inspect.getdoc(getattr(ppo_mask, name)) or ""
    return doctest.DocTestParser().get_examples(docstring)


@pytest.mark.slow  # Like the blocks of the docs.
@pytest.mark.parametrize("name", NAMES)
def test_an_example_gives_what_it_says(name: str) -> None:
    found = examples(name)
    assert found, f"{name}'s docstring needs an example"
    test = doctest.DocTest(found, {}, name, None, None, None)
    report: list[str] = []
    failed = doctest.DocTestRunner().run(test, out=report.append).failed
    assert not failed, "".join(report)

"""What all tests share: compiled programs are kept between them, and slow tests wait for a flag."""

import pytest

from ppo_mask.run import enable_compilation_cache

enable_compilation_cache()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves slow tests, and those that need a browser, out unless ``-m`` names them."""
    if not config.option.markexpr:
        for item in items:
            for mark in {"slow", "browser"} & set(item.keywords):
                item.add_marker(pytest.mark.skip(reason=f"{mark}; run with -m {mark}"))

"""What all tests share: compiled programs are kept between them, and slow tests wait for a flag."""

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import pytest

from ppo_mask.run import enable_compilation_cache

enable_compilation_cache()

_WITHOUT_OPTIMIZATIONS = "JAX_DISABLE_MOST_OPTIMIZATIONS"
# A version of XLA that does not know a flag ends the process.
_OLDER_EMITTERS = "--xla_cpu_use_fusion_emitters=false"
_HAVE_OLDER_EMITTERS = ("0.10.",)


def pytest_configure(config: pytest.Config) -> None:
    """Fast tests compile a lot and run what they compiled for a moment.

    Compiling takes a third of the time without optimisations. Slow tests have them but for modules
    marked ``unoptimized``, and so have modules marked ``optimized``, which run what they compile
    for long. With the older emitters fast tests compile in four fifths of the time.
    """
    if not config.option.markexpr:
        value = os.environ.setdefault(_WITHOUT_OPTIMIZATIONS, "1")  # Processes inherit it.
        jax.config.update(_WITHOUT_OPTIMIZATIONS.lower(), value != "0")
        flags = os.environ.get("XLA_FLAGS", "")
        if _OLDER_EMITTERS not in flags and version("jaxlib").startswith(_HAVE_OLDER_EMITTERS):
            os.environ["XLA_FLAGS"] = f"{flags} {_OLDER_EMITTERS}"
    jax.devices()  # One, then, in whatever order tests come; a run would ask for a device per core.


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves slow tests, and those that need a browser, out unless ``-m`` names them."""
    if not config.option.markexpr:
        for item in items:
            for mark in {"slow", "browser"} & set(item.keywords):
                item.add_marker(pytest.mark.skip(reason=f"{mark}; run with -m {mark}"))


@pytest.fixture(autouse=True, scope="module")
def compiler(request: pytest.FixtureRequest) -> Iterator[None]:
    """Optimises, or does not, where a module is marked so: here and in processes that it starts."""
    name = _WITHOUT_OPTIMIZATIONS.lower()
    usual, inherited = jax.config.read(name), os.environ.get(_WITHOUT_OPTIMIZATIONS, "0")
    marked = [m for m in ("optimized", "unoptimized") if request.node.get_closest_marker(m)]
    wanted = marked[0] == "unoptimized" if marked else usual
    if wanted != usual:
        jax.clear_caches()
        jax.config.update(name, wanted)
        os.environ[_WITHOUT_OPTIMIZATIONS] = str(int(wanted))
    yield
    jax.config.update(name, usual)
    os.environ[_WITHOUT_OPTIMIZATIONS] = inherited


@pytest.fixture(autouse=True, scope="module")
def room_for_programs() -> Iterator[None]:
    """Every kernel lies in a memory mapping of its own, and Linux gives a process 65,530 of them.

    A learner has 800. Where there are no more, the process crashes.
    """
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_text().count("\n") > 20_000:
        jax.clear_caches()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests stay in one process, which compiles what they share once."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log) if config.getvalue("dist") == "load" else None

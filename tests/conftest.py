"""What all tests share: kept programs, how they are compiled, and tests that wait for a flag."""

import os
import signal
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hypothesis
import jax
import pytest

from ppo_mask.runner import enable_compilation_cache

enable_compilation_cache()
# JAX keeps what takes a second to compile. Here the same small programs are compiled many times.
_KEPT_FROM = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
jax.config.update(_KEPT_FROM.lower(), float(os.environ.setdefault(_KEPT_FROM, "0")))

# What fails is the change's fault and not the day's; and machines are as busy as they are.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.load_profile("same")

_WITHOUT_OPTIMIZATIONS = "JAX_DISABLE_MOST_OPTIMIZATIONS"
_OPTIMIZATIONS_ARE_CHOSEN = _WITHOUT_OPTIMIZATIONS in os.environ
# A version of XLA that does not know a flag ends the process.
_OLDER_EMITTERS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
_HAVE_OLDER_EMITTERS = ("0.10.",)
_COMPILED_QUICKLY = ("", "long")  # Expressions after -m.
_LEFT_OUT = {"long", "slow", "browser"}  # Unless -m names them; no test has two of these marks.
_START_PROCESSES = ("test_docs.py", "test_hosts.py", "runner/test_for_accelerators.py")


def pytest_configure(config: pytest.Config) -> None:
    """Fast and long tests compile a lot and run what they compiled for a moment.

    Compiling takes a third of the time without optimizations. Slow tests have them but for those
    marked ``unoptimized``. The older emitters save a fifth of compiling, and not splitting programs
    up for several threads saves a tenth.
    """
    if config.option.markexpr in _COMPILED_QUICKLY:
        value = os.environ.setdefault(_WITHOUT_OPTIMIZATIONS, "1")  # Processes inherit it.
        jax.config.update(_WITHOUT_OPTIMIZATIONS.lower(), value != "0")
        os.environ["XLA_FLAGS"] = _with_older_emitters()
    # Where a shell starts this in the background, Ctrl+C is ignored; some tests press it.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    jax.devices()  # One, then, in whatever order tests come; a run would ask for a device per core.


def _with_older_emitters() -> str:
    flags = os.environ.get("XLA_FLAGS", "")
    if _OLDER_EMITTERS in flags or not version("jaxlib").startswith(_HAVE_OLDER_EMITTERS):
        return flags
    return f"{flags} {_OLDER_EMITTERS}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves long and slow tests, and those that need a browser, out unless ``-m`` names them.

    Whole runs of programs, which take longest, come first: no process is to wait for another's.
    """
    items.sort(key=lambda item: len(item.path.parts))
    if not config.option.markexpr:
        for item in items:
            for mark in _LEFT_OUT & set(item.keywords):
                item.add_marker(pytest.mark.skip(reason=f"{mark}; run with -m {mark}"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Optimizes for slow tests that are not marked otherwise: here and in processes they start.

    A program is compiled once in a process, however its settings change: what was compiled with
    others is forgotten.
    """
    marks = {mark.name for mark in item.iter_markers()}
    if len(_LEFT_OUT & marks) > 1 or {"nightly", "slow"} & marks == {"nightly"}:
        pytest.fail(f"of the parts of .ci/run, none or several run a test marked {sorted(marks)}")
    if item.config.option.markexpr in _COMPILED_QUICKLY or _OPTIMIZATIONS_ARE_CHOSEN:
        return
    name, value = _WITHOUT_OPTIMIZATIONS, "slow" not in marks or "unoptimized" in marks
    os.environ[name] = str(int(value))
    if jax.config.read(name.lower()) != value:
        jax.config.update(name.lower(), value)
        jax.clear_caches()


@pytest.fixture(scope="module")
def processes_with_older_emitters() -> Iterator[None]:
    """For modules that start programs and compare none of their numbers with this process's.

    This one has read its flags already, and another emitter rounds otherwise.
    """
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("XLA_FLAGS", _with_older_emitters())
        yield


@pytest.fixture
def compiled(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Gives the names of the programs that a test has compiled so far, such as ``jit(step)``.

    What other tests have compiled or traced is forgotten first.
    """
    jax.clear_caches()
    with jax.log_compiles():
        yield lambda: [m.split()[1] for m in caplog.messages if m.startswith("Compiling ")]


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
    """A file's tests stay in one process, which compiles what they share once.

    Those that start processes share next to nothing.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = LoadFileScheduling._split_scope(self, nodeid)
            return nodeid if file.endswith(_START_PROCESSES) else file

    if config.getvalue("dist") != "load":
        return None
    config.option.loadscopereorder = False  # Else files of many tests come first.
    return Scheduling(config, log)

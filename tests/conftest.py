"""What all tests share: how they are compiled, and which of them a session runs."""

import gc
import itertools
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import jax
import pytest
from _pytest.mark.expression import Expression

from chromium import browser, opened  # noqa: F401
from compilations import BUDGET, Compilations
from ppo_mask.checkpoints import _runs
from ppo_mask.runner import enable_compilation_cache
from ppo_mask.training._trainer import run_chunk

enable_compilation_cache()
# JAX keeps what takes a second to compile. Here the same small programs are compiled many times.
_KEPT_FROM = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
jax.config.update(_KEPT_FROM.lower(), float(os.environ.setdefault(_KEPT_FROM, "0")))

# What fails is the change's fault and not the day's; and machines are as busy as they are.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.load_profile("same")

_WITHOUT_OPTIMIZATIONS = "JAX_DISABLE_MOST_OPTIMIZATIONS"
# A version of XLA that does not know a flag ends the process.
_OLDER_EMITTERS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
_HAVE_THEM = version("jaxlib").startswith("0.10.")
_LEFT_OUT = {"slow", "optimized", "browser"}  # Unless -m names them; no test has two of these.
_START_PROCESSES = ("test_docs.py", "test_hosts.py", "test_compile_for.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tests pass in any order: ``--shuffle 1`` is one, ``--shuffle 2`` another."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and their tests, so")


def pytest_configure(config: pytest.Config) -> None:
    """Fast and slow tests compile a lot and run what they compiled for a moment.

    Compiling takes a third of the time without optimizations. The older emitters save a fifth more,
    and not splitting programs up for several threads a tenth. Tests marked ``optimized`` get the
    programs that users have. A process, and those that it starts, has one kind of programs only.
    """
    kinds = _kinds(config.option.markexpr)
    if len(kinds) > 1:
        raise pytest.UsageError(
            f"-m '{config.option.markexpr}' mixes tests that are compiled quickly with optimized "
            "ones; run them apart, as with -m slow and -m optimized"
        )
    quickly = os.environ.setdefault(_WITHOUT_OPTIMIZATIONS, str(int(kinds != {"optimized"})))
    jax.config.update(_WITHOUT_OPTIMIZATIONS.lower(), quickly != "0")
    if kinds != {"optimized"} and _HAVE_THEM:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = flags.replace(_OLDER_EMITTERS, "") + f" {_OLDER_EMITTERS}"
    # No test cuts the power, and a run waits longer for the disk than it computes.
    pytest.MonkeyPatch().setattr(os, "fsync", lambda _: None)
    config.pluginmanager.register(Compilations(BUDGET if _by_folder(config) else float("inf")))
    # Where a shell starts this in the background, Ctrl+C is ignored; some tests press it.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    jax.devices()  # One, then, in whatever order tests come; a run would ask for a device per core.


def pytest_collection_finish() -> None:
    """Looking for garbage took a tenth of the time, most of it in what stays."""
    gc.freeze()
    gc.set_threshold(50_000)


def _by_folder(config: pytest.Config) -> bool:
    """Whether a process gets whole folders, and compiles once what each shares: if it gets many."""
    everything = config.args_source == pytest.Config.ArgsSource.TESTPATHS
    processes = getattr(config.option, "numprocesses", 0) or 1
    return everything and not config.option.markexpr and processes <= 2


def _folder(nodeid: str) -> str:
    """The folder below ``tests`` that a test is in; a file there is by itself."""
    return "/".join(nodeid.partition("::")[0].split("/")[:2])


def pytest_report_header() -> str | None:
    """What a version of jaxlib leaves out."""
    off = f"jaxlib {version('jaxlib')}: without the older emitters, compiling takes a fifth longer"
    return None if _HAVE_THEM else off


def _kinds(selection: str) -> set[str]:
    """Which kinds of programs the tests that ``-m`` selects may need."""
    if not selection:
        return {"quick"}
    expression = Expression.compile(selection)
    return {
        kind
        for kind, *others in itertools.product(
            ("quick", "optimized"), ("", "slow"), ("", "nightly"), ("", "browser")
        )
        if expression.evaluate(lambda name, **_: name in (kind, *others))  # noqa: B023
        and not (kind == "optimized" and {"slow", "browser"} & {*others})
    }


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves slow and optimized tests, and those in a browser, out unless ``-m`` names them.

    What takes longest comes first, since no process is to wait for another's: folders of many
    tests, or else whole runs of programs.
    """
    if (seed := config.getoption("shuffle")) is None:
        items.sort(key=lambda item: len(item.path.parts))
        if _by_folder(config):
            sizes = Counter(_folder(item.nodeid) for item in items)
            items.sort(key=lambda item: -sizes[_folder(item.nodeid)])
    else:
        draw = random.Random(seed).random
        files = {item.path: draw() for item in items}
        items.sort(key=lambda item: (files[item.path], draw()))
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        parts = marks & _LEFT_OUT
        if len(parts) > 1 or ("nightly" in marks and not parts & {"slow", "optimized"}):
            raise pytest.UsageError(f"{item.nodeid}: no part of .ci/run is {sorted(marks)}")
        if not config.option.markexpr:
            for mark in parts:
                item.add_marker(pytest.mark.skip(reason=f"{mark}; run with -m {mark}"))


@pytest.fixture
def compiled(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Gives the names of the programs that a test has compiled so far, such as ``jit(step)``.

    What other tests have compiled already is not among them, unless it is :func:`forgotten`.
    """
    with jax.log_compiles():
        yield lambda: [m.split()[1] for m in caplog.messages if m.startswith("Compiling ")]


@pytest.fixture
def forgotten() -> None:
    """The training program is compiled again, whoever has compiled the same before."""
    run_chunk._cached.clear_cache()


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
    """A folder's or a file's tests stay in one process, but for those that start others."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = LoadFileScheduling._split_scope(self, nodeid)
            if file.endswith(_START_PROCESSES):
                return nodeid
            return _folder(file) if _by_folder(config) else file

    if config.getvalue("dist") != "load":
        return None
    config.option.loadscopereorder = False  # Else files of many tests come first.
    return Scheduling(config, log)


@pytest.fixture
def today(monkeypatch: pytest.MonkeyPatch) -> str:
    """A day that does not end meanwhile."""
    monkeypatch.setattr(_runs, "date", SimpleNamespace(today=lambda: date(2026, 1, 2)))
    return "2026-01-02"

"""``pytest benchmarks/ --benchmark`` measures the main subjects in minutes.

``--benchmark-full`` measures everything in an hour. Without these options, pytest tests the code
that measures.
"""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import plots
import report
from measure import Measurement, Ratio, in_turn_apart, measure_apart
from starts import start

_RUNS, _BRIEF_RUNS = 7, 3
_found: list[Measurement] = []
_ratios: list[Ratio] = []
_starts: dict[str, list[float]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of the benchmarks."""
    group = parser.getgroup("benchmarks")
    group.addoption(
        "--benchmark", action="store_true", help="measure environment and training, at two sizes"
    )
    group.addoption("--benchmark-full", action="store_true", help="measure everything (an hour)")
    group.addoption("--benchmark-json", metavar="FILE", help="write what was measured to a file")
    group.addoption("--benchmark-plot", metavar="FILE", help="draw steps/s over environments")
    group.addoption("--benchmark-compare", metavar="FILE", help="show ratios to an earlier file")


def pytest_configure(config: pytest.Config) -> None:
    """Refuses options that cannot work, before anything is measured."""
    config.addinivalue_line("markers", "brief: what --benchmark measures without -full")
    config.option.benchmark |= config.option.benchmark_full
    earlier, benchmark = config.getoption("benchmark_compare"), config.getoption("benchmark")
    plot = config.getoption("benchmark_plot")
    if (earlier or plot or config.getoption("benchmark_json")) and not benchmark:
        names = "--benchmark-json, --benchmark-plot and --benchmark-compare"
        raise pytest.UsageError(f"{names} go with --benchmark")
    if plot and importlib.util.find_spec("matplotlib") is None:
        raise pytest.UsageError(
            "--benchmark-plot needs Matplotlib; install it with pip install 'ppo-mask[plot]'"
        )
    if earlier:
        try:
            report.read(Path(earlier))
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None
    if benchmark and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("benchmarks want the machine to themselves: leave -n out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Selects the measurements that the options ask for, or the tests of the code that measures."""

    def is_wanted(item: pytest.Item) -> bool:
        measures = bool({"measured", "compared"} & {*item.fixturenames})  # pyright: ignore
        if config.getoption("benchmark_full"):
            return True
        brief = item.get_closest_marker("brief") is not None
        return brief if config.getoption("benchmark") else not measures

    items[:] = filter(is_wanted, items)


@pytest.fixture
def measured(request: pytest.FixtureRequest):
    """Returns a function that measures a subject."""
    runs = _RUNS if request.config.getoption("benchmark_full") else _BRIEF_RUNS

    def of(subject: str, num_envs: int, devices: int | None = 1) -> Measurement:
        found = measure_apart(subject=subject, num_envs=num_envs, runs=runs, devices=devices)
        _found.append(found)
        return found

    return of


@pytest.fixture
def compared():
    """Returns a function that measures two subjects in turn."""

    def of(subject: str, other: str, num_envs: int, devices: int | None) -> Ratio:
        found = in_turn_apart(
            subject=subject, other=other, num_envs=num_envs, runs=_RUNS, devices=devices
        )
        _ratios.append(found)
        return found

    return of


@pytest.fixture
def started(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[set[Path], set[Path]]:
    """Starts the trainer with an empty cache, and then again with the filled cache.

    Returns the cached programs after the first start, and after the last.
    """
    times, flags = _RUNS, []
    if not request.config.getoption("benchmark"):
        times, flags = 1, ["--num-envs", "4", "--num-steps", "4", "--hidden-dim", "8"]
        monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        # Caches all programs, however fast they compile.
        monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    found = {"first": [start(tmp_path, *flags)]}
    after_first = set(tmp_path.rglob("*-cache"))
    found["second"] = [start(tmp_path, *flags) for _ in range(times)]
    if request.config.getoption("benchmark"):
        _starts.update(found)
    return after_first, set(tmp_path.rglob("*-cache"))


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    """Prints the table, and writes the files that the options ask for."""
    if not (_found or _ratios or _starts):
        return
    earlier, path = config.getoption("benchmark_compare"), config.getoption("benchmark_json")
    console = report.Console(file=terminalreporter._tw._file, width=120)
    console.print()
    report.show(console, _found, _ratios, report.read(Path(earlier)) if earlier else (), _starts)
    if path:
        report.write(Path(path), _found, _ratios, _starts)
    if plot := config.getoption("benchmark_plot"):
        plots.plot(Path(plot), _found)

"""Counts the programs that a session compiles: compiling is what tests take their time for."""

from collections import Counter
from typing import Any

import jax
import pytest

BUDGET = 4_100
"""Programs that all fast tests may compile, in one or two processes. More processes share less."""

_EVENT = "/jax/core/compile/backend_compile_duration"  # From the cache on disk, too.


class Compilations:
    """A plugin: of all workers, by test. Over its budget a session fails and says why."""

    def __init__(self, budget: float):
        self._budget, self._counts, self._test = budget, Counter[str](), "while collecting"
        jax.monitoring.register_event_duration_secs_listener(self._count)

    def _count(self, event: str, *_: Any, **__: Any) -> None:
        self._counts[self._test] += event == _EVENT

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._test = item.nodeid
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._counts.update(getattr(node, "workeroutput", {}).get("compilations", {}))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["compilations"] = dict(self._counts)
        elif self._counts.total() > self._budget and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        total = self._counts.total()
        terminalreporter.write_line(f"{total:,} programs compiled")
        if total > self._budget:
            terminalreporter.section(f"more than {self._budget:,}, the budget of {__file__}")
            for test, count in self._counts.most_common(10):
                terminalreporter.write_line(f"{count:6,} {test}")

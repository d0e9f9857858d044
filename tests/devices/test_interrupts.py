"""Ctrl+C is heard where the main thread handles no signals."""

import os
import signal
import threading
from unittest.mock import Mock

import pytest

from ppo_mask.devices import interrupts
from waiting import PATIENCE


@pytest.fixture
def ended(monkeypatch):
    """Set where the process would end; until then nobody here handles Ctrl+C."""
    happened = threading.Event()
    monkeypatch.setattr(interrupts, "_NOTICE", 0)
    monkeypatch.setattr(interrupts, "_PATIENCE", 0)
    monkeypatch.setattr(os, "_exit", Mock(side_effect=lambda code: happened.set()))
    before = {number: signal.signal(number, lambda *_: None) for number in NUMBERS}
    yield happened
    for number, handler in before.items():
        signal.signal(number, handler)


NUMBERS = INT, TERM, CHANGED = signal.SIGINT, signal.SIGTERM, signal.SIGWINCH


@pytest.mark.parametrize("numbers", [(INT, INT), (TERM, INT), (INT, CHANGED, TERM, INT)])
def test_a_second_ctrl_c_ends_a_process_that_hangs(numbers, ended):
    told = threading.Event()
    with interrupts.second_interrupt_ends(told.set), interrupts.second_interrupt_ends():
        signal.raise_signal(numbers[0])
        assert told.wait(PATIENCE)
        assert not ended.is_set()
        for number in numbers[1:]:
            signal.raise_signal(number)
        assert ended.wait(PATIENCE)
    os._exit.assert_called_with(130)
    assert signal.set_wakeup_fd(-1) == -1


def test_nothing_ends_where_ctrl_c_is_heard(ended, monkeypatch):
    monkeypatch.setattr(interrupts, "_PATIENCE", PATIENCE)
    before = threading.active_count()
    with interrupts.second_interrupt_ends():
        for number in (INT, INT, TERM):
            signal.raise_signal(number)
    for thread in threading.enumerate()[before:]:
        thread.join()
    assert not ended.is_set()

"""Ctrl+C while the main thread waits for compiled code, where Python handles no signals."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import no_type_check

# Seconds until ``tell`` is called, and seconds that the main thread has to leave the block.
_NOTICE, _PATIENCE = 1.0, 5.0
_is_listening = False


@contextmanager
def second_interrupt_ends(tell: Callable[[], None] = lambda: None) -> Generator[None]:
    """Lets a second Ctrl+C in the ``with`` block end the process, even where Python hears none.

    Python handles signals in the main thread only, and the main thread may wait for compiled code,
    which may wait for an environment that hangs. If the block goes on for some seconds after the
    second Ctrl+C, the process exits with code 130, and nothing is cleaned up. Does nothing outside
    of the main thread, in notebooks, and in such a block.

    Args:
        tell: called from another thread, soon after a first Ctrl+C or SIGTERM.
    """
    global _is_listening
    is_main = threading.current_thread() is threading.main_thread()
    if _is_listening or not is_main or hasattr(sys, "ps1"):
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    left = threading.Event()
    threading.Thread(target=_listen, args=(reader, left, tell), daemon=True).start()
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    _is_listening = True
    try:
        yield
    finally:
        _is_listening = False
        signal.set_wakeup_fd(before)
        left.set()
        writer.close()


@no_type_check
def _listen(reader: socket.socket, left: threading.Event, tell: Callable[[], None]) -> None:
    from multiprocessing import active_children

    is_first = True
    with reader:
        while number := reader.recv(1):  # Python's C code writes a byte for each signal.
            if number[0] not in (signal.SIGINT, signal.SIGTERM) or left.wait(_NOTICE):
                continue
            if is_first:
                tell()
            elif number[0] == signal.SIGINT and not left.wait(_PATIENCE):
                for child in active_children():  # Such as those of an AsyncVectorEnv.
                    child.kill()
                if os.isatty(1):
                    os.write(1, b"\x1b[?25h\n")  # The cursor, which a progress bar hides.
                os._exit(128 + signal.SIGINT)
            is_first = False

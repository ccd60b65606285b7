"""Lets SIGTERM end a program in order."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Make SIGTERM raise SystemExit, so that what the program holds is released."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""Brokers that tests of one process take in turn, each time as clean as a new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from leveret.broker.embedded import Definitions, Options
from leveret.broker.embedded_thread import LeveretThread
from leveret.broker.testing.environment import NotRunningError

#: Brokers that nobody uses; the one used last is taken first, so that tests see the same URL again and again.
_IDLE: Final[list[LeveretThread]] = []


@contextmanager
def clean_broker(options: Options | None = None, definitions: Definitions | None = None) -> Iterator[LeveretThread]:
    """Have a broker without connections and data: one that runs already, or a new one. A context manager.

    It stops with the process, or when stop_clean_brokers() is called.

    Args:
        options: Options by name, for as long as the broker is had.
        definitions: What exists at first; see Leveret.
    Raises:
        ConfigError: An option does not exist, or its value is invalid.
        DefinitionsError: A definition is invalid.
        StartError: It cannot start; the text says why.
    """
    broker = _IDLE.pop() if _IDLE else LeveretThread()
    try:
        try:
            broker.reset(options, definitions)
        except NotRunningError:
            # It is new, or the last test has stopped it.
            broker.start()
            broker.reset(options, definitions)
        yield broker
    finally:
        _IDLE.append(broker)


def stop_clean_brokers() -> None:
    """Stop the brokers that nobody uses."""
    while _IDLE:
        _IDLE.pop().stop()

"""Requests to abort, kept as files: dramatiq-abort's own way would need a Redis."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from dramatiq_abort import Event, EventBackend


class FileEvents(EventBackend):
    """A directory with a file for each event that was signalled."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def wait_many(self, keys: Iterable[str], timeout: int) -> Event | None:
        """Wait for one of some events, for a number of milliseconds."""
        waited_for, deadline = list(keys), time.monotonic() + timeout / 1000
        while time.monotonic() < deadline:
            for key in waited_for:
                if (event := self.poll(key)) is not None:
                    return event
            time.sleep(0.02)
        return None

    def poll(self, key: str) -> Event | None:
        """Take an event, if it was signalled."""
        try:
            (self._directory / key).unlink()
        except FileNotFoundError:
            return None
        return Event(key, {})

    def notify(self, events: Iterable[Event], ttl: int) -> None:
        """Signal events; they stay for ever."""
        for event in events:
            (self._directory / event.key).touch()

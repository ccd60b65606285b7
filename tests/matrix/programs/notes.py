"""A file in which other processes note what they do, with the time."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.integration.waiting import PATIENCE, wait_until


@dataclass(frozen=True)
class Note:
    """One line."""

    at: float
    text: str


class Notes:
    """The file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, text: str) -> None:
        """Add a note; processes may do so at the same time."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, f"{time.time()} {text}\n".encode())
        finally:
            os.close(descriptor)

    def all(self) -> list[Note]:
        """All notes in their order."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        parts = [line.partition(" ") for line in lines]
        return [Note(float(at), text) for at, _, text in parts]

    def of(self, start: str) -> list[Note]:
        """The notes that begin with a text."""
        return [note for note in self.all() if note.text.startswith(start)]

    def texts(self, start: str = "") -> list[str]:
        """The texts of notes that begin with a text."""
        return [note.text for note in self.of(start)]

    def wait_for(self, start: str, count: int = 1, *, timeout: float = PATIENCE) -> list[Note]:
        """Wait until this many notes begin with a text, and return them."""
        wait_until(lambda: len(self.of(start)) >= count, f"{count} notes {start!r}", timeout=timeout)
        return self.of(start)

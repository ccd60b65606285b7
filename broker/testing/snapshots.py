"""Snapshots of an embedded broker, to which a test can go back."""

from __future__ import annotations

import shutil
from pathlib import Path

from leveret.broker.testing.published import KeptMessages


class Snapshot:
    """The state of a broker at one time: see Leveret.snapshot(). It is removed with the broker, or by remove().

    Args:
        path: Copy of the data directory.
        clock_offset: Microseconds by which the broker's clock was ahead of the system's.
        published: What clients had published.

    Attributes:
        path: See Args.
        clock_offset: See Args.
        published: See Args.
    """

    def __init__(self, path: Path, clock_offset: int, published: KeptMessages) -> None:
        self.path = path
        self.clock_offset = clock_offset
        self.published = published

    @property
    def exists(self) -> bool:
        """Whether it has not been removed."""
        return self.path.is_dir()

    def remove(self) -> None:
        """Remove its files."""
        shutil.rmtree(self.path, ignore_errors=True)

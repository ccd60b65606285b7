"""A progress bar on standard error, on a terminal only."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, TextIO

#: Width of the bar in characters.
_WIDTH: Final = 30
#: Minimum time between two updates, in seconds.
_INTERVAL: Final = 0.1
#: Returns to the start of the line and clears it.
_CLEAR: Final = "\r\x1b[K"


class ProgressLine:
    """Progress bar, as a context manager that removes the bar at its end.

    Args:
        label: Text before the bar.
        total: Amount of work, at least 0.
        silent: Whether to show nothing.
        stream: Output stream, by default stderr; the bar is shown only if it is a terminal.
    """

    def __init__(self, label: str, total: int, *, silent: bool = False, stream: TextIO | None = None) -> None:
        self._label = label
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._visible = not silent and self._stream.isatty()
        self._drawn_at = -_INTERVAL

    def __enter__(self) -> ProgressLine:
        self.update(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._visible:
            self._stream.write(_CLEAR)
            self._stream.flush()

    @property
    def visible(self) -> bool:
        """Whether the bar is shown."""
        return self._visible

    def update(self, done: int, note: str = "") -> None:
        """Show the amount of work done. Redraws at most ten times a second.

        Args:
            done: The amount.
            note: What is said after the bar.
        """
        now = time.monotonic()
        if not self._visible or now - self._drawn_at < _INTERVAL:
            return
        self._drawn_at = now
        self._stream.write(_CLEAR + render_bar(self._label, done, self._total) + (note and f" {note}"))
        self._stream.flush()


def render_bar(label: str, done: int, total: int) -> str:
    """Return the bar as text.

    Args:
        label: Text before the bar.
        done: Amount of work done; may exceed the total.
        total: Amount of work.
    """
    share = min(1.0, done / total) if total else 1.0
    filled = int(share * _WIDTH)
    return f"{label} [{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%} {done}/{max(done, total)}"

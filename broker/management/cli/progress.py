"""A progress bar on standard error, on a terminal only."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, TextIO

_WIDTH: Final = 30
_INTERVAL: Final = 0.1
_CLEAR: Final = "\r\x1b[K"


class ProgressLine:
    """A bar; a context manager that removes it, so that it leaves nothing between the lines of the output.

    Args:
        label: what is under way.
        total: how much there is to do; at least 0.
        silent: shows nothing, whatever the stream is.
        stream: where to; nothing is shown unless it is a terminal.
    """

    def __init__(self, label: str, total: int, *, silent: bool = False, stream: TextIO | None = None) -> None:
        self._label = label
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._shown = not silent and self._stream.isatty()
        self._painted = -_INTERVAL
        self._done = 0

    def __enter__(self) -> ProgressLine:
        self.at(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()

    @property
    def shown(self) -> bool:
        """Whether anybody sees it."""
        return self._shown

    def at(self, done: int) -> None:
        """Show how much is done; paints at most ten times a second."""
        self._done = done
        now = time.monotonic()
        if not self._shown or now - self._painted < _INTERVAL:
            return
        self._painted = now
        self._stream.write(_CLEAR + bar(self._label, done, self._total))
        self._stream.flush()


def bar(label: str, done: int, total: int) -> str:
    """Return the bar as text.

    Args:
        label: what is under way.
        done: how much of it is done.
        total: how much there is; more may turn out to be done.
    """
    share = min(1.0, done / total) if total else 1.0
    filled = int(share * _WIDTH)
    return f"{label} [{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%} {done}/{max(done, total)}"

"""Style of the output beyond its format."""

from __future__ import annotations

from typing import Final, NamedTuple

BOLD: Final = "\x1b[1m"
PLAIN: Final = "\x1b[0m"


class Style(NamedTuple):
    """Style of the output.

    Args:
        headers: whether the plain table begins with the names of its columns.
        terminal: whether somebody reads it on a terminal, so that headers are bold.
    """

    headers: bool = True
    terminal: bool = False

    def bold(self, text: str) -> str:
        """Return a text as a header is written."""
        return f"{BOLD}{text}{PLAIN}" if self.terminal and text else text

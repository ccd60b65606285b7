"""Output style: headers and bold text."""

from __future__ import annotations

from typing import Final, NamedTuple

BOLD: Final = "\x1b[1m"
PLAIN: Final = "\x1b[0m"


class Style(NamedTuple):
    """Output style.

    Args:
        headers: whether the plain table starts with the column names.
        terminal: whether the output is a terminal, so that headers are bold.
    """

    headers: bool = True
    terminal: bool = False

    def bold(self, text: str) -> str:
        """Return a header text, bold on a terminal."""
        return f"{BOLD}{text}{PLAIN}" if self.terminal and text else text

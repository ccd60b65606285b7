"""Texts that others have given, as they can be shown in a line of a log or of a table."""

from __future__ import annotations

import re
from typing import Final

#: Control characters (C0, DEL, C1), line and paragraph separators, what changes the direction of writing, and what
#: stands for octets that are no UTF-8: in a log or on a terminal they could forge lines and hide text.
_CONTROLS: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_A_LINE: Final = re.compile(f"[\t\n{_CONTROLS}]")
_IN_LINES: Final = re.compile(f"[{_CONTROLS}]")
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def in_a_line(text: str) -> str:
    r"""A text without control characters, which are written as in Python: `\n`, `\x1b`, `\u202e`."""
    return text if text.isprintable() else _IN_A_LINE.sub(_escape, text)


def in_lines(text: str) -> str:
    """The same, but lines and tabs stay."""
    return text if text.isprintable() else _IN_LINES.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    number = ord(character)
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")

"""Escapes control characters in texts from clients, for logs and terminals."""

from __future__ import annotations

import re
from typing import Final

#: Control characters (C0, DEL, C1), line and paragraph separators, marks of text direction, and surrogates (bytes that
#: are not UTF-8). In a log or on a terminal they could forge lines and hide text.
_CONTROLS: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_A_LINE: Final = re.compile(f"[\t\n{_CONTROLS}]")
_IN_LINES: Final = re.compile(f"[{_CONTROLS}]")
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def escape_line(text: str) -> str:
    r"""Return a text with control characters escaped as in Python: `\n`, `\x1b`, `\u202e`."""
    return text if text.isprintable() else _IN_A_LINE.sub(_escape, text)


def escape_multiline(text: str) -> str:
    """Return a text with control characters escaped, except line feeds and tabs."""
    return text if text.isprintable() else _IN_LINES.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    number = ord(character)
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")

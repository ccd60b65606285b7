"""Incremental parser for long JSON texts, which would block the event loop if parsed at once."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any, Final

from leveret.broker.core.json_values.tables import SURROGATES, decode_json, decoder, parse_json, replace_surrogates

#: Texts up to this many bytes are parsed at once.
_SHORT: Final = 16_384
#: Characters of a long text that are parsed at once.
_WINDOW: Final = 4096
#: Limit of nested objects and lists.
_DEPTH_MAX: Final = 500
#: Failed attempts to parse several members at once, after which an object or list is parsed one by one.
_MISSES_MAX: Final = 3
_ENDS: Final = {"{": "}", "[": "]"}
_SPACE: Final = re.compile(r"[ \t\n\r]*")


def parse_json_in_steps(octets: bytes) -> Generator[None, None, Any]:
    """Like parse_json(), in short steps; the generator returns the value.

    Args:
        octets: The text.
    Raises:
        ValueError: See parse_json().
    """
    if len(octets) <= _SHORT:
        return parse_json(octets)
    return (yield from read_in_steps(decode_json(octets), decoder))


def read_in_steps(text: str, using: json.JSONDecoder) -> Generator[None, None, Any]:
    """Parse a long text in short steps; the generator returns the value.

    Args:
        text: The text.
        using: Parses the parts of it.
    Raises:
        NestedTooDeep: It has too many levels.
        ValueError: It is not JSON.
    """
    return (yield from _Reader(text, using).steps())


class NestedTooDeep(ValueError):
    """A text has too many levels of objects and lists."""


class _Reader:
    """Parses one text: values that end within the window at once, others member by member."""

    def __init__(self, text: str, using: json.JSONDecoder) -> None:
        self._text = text
        self._decoder = using
        self._position = 0
        # Incomplete objects and lists, the outermost first, and the key whose value comes next in each.
        self._open: list[Any] = []
        self._keys: list[str] = []
        # Failed attempts to parse several members at once, by nesting level.
        self._misses: list[int] = []

    def steps(self) -> Generator[None, None, Any]:
        """Parse the whole text; return the value."""
        self._skip_space()
        while True:
            yield
            if self._open:
                if self._read_members():
                    continue
                if isinstance(self._open[-1], dict):
                    self._keys[-1] = self._read_key()
            found = self._read_value()
            if found is _BEGUN:
                continue
            # Add the value to its container, which may be complete then and is itself added to the next one.
            while self._open:
                self._put(found)
                if not self._ends_container():
                    break
                self._keys.pop()
                self._misses.pop()
                found = self._open.pop()
            else:
                if self._position != len(self._text):
                    raise self._fault("Extra data")
                return found

    def _read_members(self) -> bool:
        """Parse the members up to the last comma of the window; this fails if that comma is inside a member."""
        if self._misses[-1] >= _MISSES_MAX:
            return False
        innermost = self._open[-1]
        start, end = ("{", "}") if isinstance(innermost, dict) else ("[", "]")
        window = self._text[self._position : self._position + _WINDOW]
        last = window.rfind(",")
        try:
            members = self._decoder.decode(f"{start}{window[: max(last, 0)]}{end}")
        except (ValueError, RecursionError):
            members = None
        if not members:
            self._misses[-1] += 1
            return False
        if SURROGATES.search(window):
            members = replace_surrogates(members)
        if isinstance(innermost, dict):
            innermost.update(members)
        else:
            innermost.extend(members)
        self._position += last + 1
        self._skip_space()
        return True

    def _read_value(self) -> Any:
        """Parse the next value; return _BEGUN for an object or list that is longer than the window."""
        window = self._text[self._position : self._position + _WINDOW]
        try:
            value, end = self._decoder.raw_decode(window)
        except (ValueError, RecursionError):
            return self._read_long_value()
        if end == len(window) and self._position + end < len(self._text):
            # A number may continue after the window.
            return self._read_long_value()
        if SURROGATES.search(window, 0, end):
            value = replace_surrogates(value)
        self._position += end
        self._skip_space()
        return value

    def _read_long_value(self) -> Any:
        first = self._text[self._position : self._position + 1]
        if first in ("{", "["):
            if len(self._open) >= _DEPTH_MAX:
                raise NestedTooDeep("nested too deep")
            self._position += 1
            self._skip_space()
            container: Any = {} if first == "{" else []
            if self._text[self._position : self._position + 1] == _ENDS[first]:
                self._position += 1
                self._skip_space()
                return container
            self._open.append(container)
            self._keys.append("")
            self._misses.append(0)
            return _BEGUN
        return self._read_single()

    def _read_single(self) -> Any:
        """Parse a string of any length, a number or a literal."""
        value, self._position = self._decoder.raw_decode(self._text, self._position)
        self._skip_space()
        return replace_surrogates(value) if isinstance(value, str) else value

    def _read_key(self) -> str:
        if self._text[self._position : self._position + 1] != '"':
            raise self._fault("Expecting property name")
        key = self._read_single()
        self._expect(":")
        return str(key)

    def _put(self, value: Any) -> None:
        innermost = self._open[-1]
        if isinstance(innermost, dict):
            innermost[self._keys[-1]] = value
        else:
            innermost.append(value)

    def _ends_container(self) -> bool:
        """Parse the comma or bracket after a member; return whether the container ends."""
        is_object = isinstance(self._open[-1], dict)
        if self._text[self._position : self._position + 1] == ("}" if is_object else "]"):
            self._position += 1
            self._skip_space()
            return True
        self._expect(",")
        return False

    def _expect(self, character: str) -> None:
        if self._text[self._position : self._position + 1] != character:
            raise self._fault(f"Expecting {character!r}")
        self._position += 1
        self._skip_space()

    def _skip_space(self) -> None:
        found = _SPACE.match(self._text, self._position)
        assert found is not None
        self._position = found.end()

    def _fault(self, reason: str) -> ValueError:
        return json.JSONDecodeError(reason, self._text, self._position)


_BEGUN: Final = object()

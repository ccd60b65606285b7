"""Long JSON texts, read a little at a time: Python's own reader would hold everybody up until it is through."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any, Final

from leveret.broker.core.json_text import decoder, parse_json, refuse_halves

#: Bytes that are read at once. Their values can be many, ``[[],[],…``, or few.
_SHORT: Final = 65_536
#: Characters of a value that is read at once within a long text.
_WINDOW: Final = 4096
#: Objects and lists inside of each other.
_DEPTH_MAX: Final = 500
#: Of one object or list; then its members are read one by one.
_MISSES_MAX: Final = 3
_ENDS: Final = {"{": "}", "[": "]"}
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_HALVES: Final = re.compile(r"\\u[dD]")


def parse_json_in_steps(octets: bytes) -> Generator[None, None, Any]:
    """Like parse_json(), in short steps; the value is what the generator returns.

    Args:
        octets: UTF-8.
    Raises:
        ValueError: As parse_json().
    """
    if len(octets) <= _SHORT:
        return parse_json(octets)
    return (yield from _Reader(octets.decode("utf-8")).steps())


class _Reader:
    """Reads one text: values that end within the window at once, others member by member.

    Args:
        text: The text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        # Objects and lists that are not complete, the outermost first, and the key that waits for its value in each.
        self._open: list[Any] = []
        self._keys: list[str] = []
        # How often several members could not be read at once.
        self._misses: list[int] = []

    def steps(self) -> Generator[None, None, Any]:
        """Read it all; return the value."""
        self._skip()
        while True:
            yield
            if self._open:
                if self._several():
                    continue
                if isinstance(self._open[-1], dict):
                    self._keys[-1] = self._key()
            found = self._value()
            if found is _BEGUN:
                continue
            # The value of a member, and of the one around it if that ends here.
            while self._open:
                self._put(found)
                if not self._ends():
                    break
                self._keys.pop()
                self._misses.pop()
                found = self._open.pop()
            else:
                if self._at != len(self._text):
                    raise self._fault("Extra data")
                return found

    def _several(self) -> bool:
        """Read the members that end within the window, if they can be told: the last comma may be within one."""
        if self._misses[-1] >= _MISSES_MAX:
            return False
        innermost = self._open[-1]
        start, end = ("{", "}") if isinstance(innermost, dict) else ("[", "]")
        window = self._text[self._at : self._at + _WINDOW]
        last = window.rfind(",")
        try:
            members = decoder.decode(f"{start}{window[: max(last, 0)]}{end}")
        except (ValueError, RecursionError):
            members = None
        if not members:
            self._misses[-1] += 1
            return False
        if _HALVES.search(window):
            refuse_halves(members)
        if isinstance(innermost, dict):
            innermost.update(members)
        else:
            innermost.extend(members)
        self._at += last + 1
        self._skip()
        return True

    def _value(self) -> Any:
        """The value that comes next; _BEGUN if that is an object or list that is longer than the window."""
        window = self._text[self._at : self._at + _WINDOW]
        try:
            value, end = decoder.raw_decode(window)
        except (ValueError, RecursionError):
            return self._long_value()
        if end == len(window) and self._at + end < len(self._text):
            # A number may go on.
            return self._long_value()
        if _HALVES.search(window, 0, end):
            refuse_halves(value)
        self._at += end
        self._skip()
        return value

    def _long_value(self) -> Any:
        first = self._text[self._at : self._at + 1]
        if first in ("{", "["):
            if len(self._open) >= _DEPTH_MAX:
                raise ValueError("nested too deep")
            self._at += 1
            self._skip()
            container: Any = {} if first == "{" else []
            if self._text[self._at : self._at + 1] == _ENDS[first]:
                self._at += 1
                self._skip()
                return container
            self._open.append(container)
            self._keys.append("")
            self._misses.append(0)
            return _BEGUN
        return self._single()

    def _single(self) -> Any:
        """A string, however long, a number or a word."""
        value, self._at = decoder.raw_decode(self._text, self._at)
        if isinstance(value, str):
            # Only an escape can stand for half a character.
            value.encode("utf-8")
        self._skip()
        return value

    def _key(self) -> str:
        if self._text[self._at : self._at + 1] != '"':
            raise self._fault("Expecting property name")
        key = self._single()
        self._expect(":")
        return str(key)

    def _put(self, value: Any) -> None:
        innermost = self._open[-1]
        if isinstance(innermost, dict):
            innermost[self._keys[-1]] = value
        else:
            innermost.append(value)

    def _ends(self) -> bool:
        """Read what comes behind a member; return whether that is the end."""
        is_object = isinstance(self._open[-1], dict)
        if self._text[self._at : self._at + 1] == ("}" if is_object else "]"):
            self._at += 1
            self._skip()
            return True
        self._expect(",")
        return False

    def _expect(self, character: str) -> None:
        if self._text[self._at : self._at + 1] != character:
            raise self._fault(f"Expecting {character!r}")
        self._at += 1
        self._skip()

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _fault(self, reason: str) -> ValueError:
        return json.JSONDecodeError(reason, self._text, self._at)


_BEGUN: Final = object()

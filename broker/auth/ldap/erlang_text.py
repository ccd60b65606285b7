"""Reads Erlang terms as they stand in RabbitMQ's advanced.config, so that its queries can be pasted.

Source: https://www.erlang.org/doc/system/data_types
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

#: Tuples, lists, and texts: atoms, strings and binaries are alike here. The atoms true and false are booleans.
Term: TypeAlias = "str | bool | tuple[Term, ...] | list[Term]"

_TOKEN: Final = re.compile(
    r"""\s*(?:%[^\n]*\n\s*)*(?:
        (?P<mark><<|>>|[][{},.])
        | (?P<atom>[a-z][A-Za-z0-9_@]*)
        | '(?P<quoted>(?:[^'\\]|\\.)*)'
        | "(?P<string>(?:[^"\\]|\\.)*)"
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "s": " ", "e": "\x1b", "0": "\0"}
_CLOSING: Final = {"{": "}", "[": "]", "<<": ">>"}
#: How deep terms are nested at most.
_DEPTH_MAX: Final = 50


def parse_term(text: str) -> Term:
    """Return the Erlang term of a text, with or without a dot at its end.

    Raises:
        ValueError: It is none, or has numbers, variables or maps, which no query has; the text says where.
    """
    reader = _Reader(text)
    term = reader.term(0)
    reader.end()
    return term


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def term(self, depth: int) -> Term:
        if depth > _DEPTH_MAX:
            raise self._wrong("it is nested too deeply")
        kind, value = self._next()
        if kind == "mark":
            if value not in _CLOSING:
                raise self._wrong(f"{value!r} is not expected")
            items = self._items(_CLOSING[value], depth)
            if value == "<<":
                return self._binary(items)
            return tuple(items) if value == "{" else items
        if kind == "atom":
            return value == "true" if value in ("true", "false") else value
        text = re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), value, flags=re.DOTALL)
        # Strings in a row are one.
        while kind == "string" and self._peek() == "string":
            text += str(self.term(depth + 1))
        return text

    def end(self) -> None:
        rest = self._text[self._at :].strip()
        if rest not in ("", "."):
            raise self._wrong("there is more behind the term")

    def _items(self, closing: str, depth: int) -> list[Term]:
        items: list[Term] = []
        while True:
            before = self._at
            if not items and self._next() == ("mark", closing):
                return items
            if not items:
                self._at = before
            items.append(self.term(depth + 1))
            mark = self._next()
            if mark == ("mark", closing):
                return items
            if mark != ("mark", ","):
                raise self._wrong(f"',' or {closing!r} is expected")

    def _binary(self, items: list[Term]) -> Term:
        if not all(isinstance(item, str) for item in items):
            raise self._wrong("a binary must be a string")
        return "".join(map(str, items))

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        return "" if match is None else str(match.lastgroup)

    def _next(self) -> tuple[str, str]:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._wrong("a term is expected")
        self._at = match.end()
        kind = str(match.lastgroup)
        return kind, match[kind]

    def _wrong(self, reason: str) -> ValueError:
        return ValueError(f"is not an Erlang term: behind {self._text[: self._at][-30:]!r} {reason}")

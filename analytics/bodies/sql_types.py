"""Types of values as Spark's DDL writes them. It needs no library, so that rules can be checked where none is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from leveret.analytics.errors import OptionError

PLAIN: Final = (
    "string", "bigint", "int", "smallint", "tinyint", "double", "float", "boolean", "binary", "date", "timestamp",
    "timestamp_ntz",
)  # fmt: skip
_SYNONYMS: Final = {
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "varchar": "string",
    "char": "string",
    "character": "string",
}
_DECIMALS: Final = ("decimal", "dec", "numeric")
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\w+|[<>(),:])")
_DIGITS_MAX: Final = 38
_DEPTH_MAX: Final = 64
#: Characters of a text that errors show.
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type.

    Attributes:
        name: `struct`, `array`, `map`, `decimal`, or one of PLAIN.
        parts: Types of the fields of a struct, of the elements of an array, or of key and value of a map.
        fields: Of a struct, the names of its fields.
        sizes: Of a decimal, its digits, and how many of these are behind the point.
    """

    name: str
    parts: tuple[SqlType, ...] = ()
    fields: tuple[str, ...] = ()
    sizes: tuple[int, int] = (0, 0)

    @property
    def ddl(self) -> str:
        """The type in Spark's DDL."""
        if self.name == "struct":
            fields = zip(self.fields, self.parts, strict=True)
            return f"struct<{', '.join(f'{quoted(name)}: {each.ddl}' for name, each in fields)}>"
        if self.name == "decimal":
            return f"decimal({self.sizes[0]}, {self.sizes[1]})"
        return f"{self.name}<{', '.join(each.ddl for each in self.parts)}>" if self.parts else self.name


def struct(fields: Iterable[tuple[str, SqlType]]) -> SqlType:
    """Return the struct of fields."""
    known = list(fields)
    return SqlType("struct", tuple(each for _, each in known), tuple(name for name, _ in known))


def quoted(name: str) -> str:
    """Return the name of a field as DDL has it."""
    return f"`{name.replace('`', '``')}`"


def read_type(text: str) -> SqlType:
    """Return the type that Spark's DDL describes.

    Args:
        text: Columns (`id bigint, tags array<string>`), which make a struct, or a single type (`array<string>`).
    Raises:
        OptionError: It is not a type.
    """
    try:
        return _Parser(text).single()
    except OptionError:
        # It has columns, then, or is wrong.
        return _Parser(text).columns()


class _Parser:
    """Reads a type."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        self._depth = 0
        at = 0
        end = len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._error(text[at:].strip()[:20])
            self._tokens.append(found[1])
            at = found.end()
        self._at = 0

    def single(self) -> SqlType:
        """Return the type that is the whole text."""
        return self._ended(self._type())

    def columns(self) -> SqlType:
        """Return the struct of the columns that are the whole text."""
        return self._ended(self._fields(lambda: not self._peek()))

    def _ended(self, kind: SqlType) -> SqlType:
        if self._peek():
            raise self._error(self._peek())
        return kind

    def _type(self) -> SqlType:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise OptionError(f"cannot read the schema: types are nested more than {_DEPTH_MAX} deep")
        try:
            return self._one_type()
        finally:
            self._depth -= 1

    def _one_type(self) -> SqlType:
        name = self._next().lower()
        if name == "array":
            self._expect("<")
            kind = SqlType("array", (self._type(),))
            self._expect(">")
            return kind
        if name == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            kind = SqlType("map", (key, self._type()))
            self._expect(">")
            return kind
        if name == "struct":
            self._expect("<")
            kind = self._fields(lambda: self._peek() == ">")
            self._expect(">")
            return kind
        sizes = self._sizes()
        if name in _DECIMALS:
            precision, scale = (*sizes, 0)[:2] if sizes else (10, 0)
            if not 1 <= precision <= _DIGITS_MAX or not 0 <= scale <= precision:
                raise OptionError(f"a decimal has 1 to {_DIGITS_MAX} digits, not ({precision}, {scale})")
            return SqlType("decimal", sizes=(precision, scale))
        plain = _SYNONYMS.get(name, name)
        if plain not in PLAIN:
            raise self._error(name)
        return SqlType(plain)

    def _sizes(self) -> list[int]:
        sizes: list[int] = []
        if self._peek() == "(":
            self._next()
            while True:
                size = self._next()
                if not size.isdecimal():
                    raise self._error(size)
                sizes.append(int(size))
                if self._peek() != ",":
                    break
                self._next()
            self._expect(")")
        return sizes

    def _fields(self, ended: Callable[[], bool]) -> SqlType:
        fields: list[tuple[str, SqlType]] = []
        while not ended():
            if fields:
                self._expect(",")
            name = self._next()
            if name[0] == "`":
                name = name[1:-1].replace("``", "`")
            elif not name[0].isalnum() and name[0] != "_":
                raise self._error(name)
            if self._peek() == ":":
                self._next()
            fields.append((name, self._type()))
            if self._peek().lower() == "not":
                self._next()
                self._expect("null")
            if self._peek().lower() == "comment":
                self._next()
                self._next()
        return struct(fields)

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise self._error("")
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._peek().lower() != token:
            raise self._error(self._peek())
        self._next()

    def _error(self, token: str) -> OptionError:
        where = f"at '{token[:_SHOWN]}'" if token else "at its end"
        text = self._text if len(self._text) <= _SHOWN else f"{self._text[:_SHOWN]}…"
        return OptionError(f"cannot read the schema '{text}' {where}; write it as 'id bigint, tags array<string>'")

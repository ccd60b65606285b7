"""Types of values as text, in Spark's DDL, and as Arrow types."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from leveret.analytics.errors import OptionError
from leveret.analytics.options import BodySchema


def schema_text(schema: BodySchema | None) -> str | None:
    """Return the schema of bodies as the option bodySchema; None for none.

    Raises:
        OptionError: Spark lacks a type of the Arrow schema.
    """
    if isinstance(schema, pa.Schema):
        return type_ddl(pa.struct(list(schema)))
    if isinstance(schema, pa.DataType):
        return type_ddl(schema)
    return None if schema is None else os.fspath(schema)


#: The times that Spark has: of the years 1 to 9999, in microseconds since 1970.
TIMES: Final = range(-62_135_596_800_000_000, 253_402_300_800_000_000)
_PLAIN: Final[dict[str, Any]] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "tinyint": pa.int8(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
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
#: Arrow types that Spark has not, by the one that takes their place.
_WIDER: Final = {pa.large_string(): "string", pa.large_binary(): "binary"}
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\w+|[<>(),:])")
_DIGITS_MAX: Final = 38


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type for a type in Spark's DDL.

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


def type_ddl(kind: pa.DataType) -> str:
    """Return an Arrow type in Spark's DDL.

    Raises:
        OptionError: Spark has no such type.
    """
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{quoted(each.name)}: {type_ddl(each.type)}' for each in kind)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return f"array<{type_ddl(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_ddl(kind.key_type)}, {type_ddl(kind.item_type)}>"
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if kind in _WIDER:
        return _WIDER[kind]
    for name, each in _PLAIN.items():
        if each == kind:
            return name
    raise OptionError(
        f"Spark has no type for Arrow's {kind}; the types are {', '.join(_PLAIN)}, decimal, array, map, struct"
    )


def quoted(name: str) -> str:
    """Return the name of a field as DDL has it."""
    return f"`{name.replace('`', '``')}`"


class _Parser:
    """Reads a type."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at = 0
        end = len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._error(text[at:].strip()[:20])
            self._tokens.append(found[1])
            at = found.end()
        self._at = 0

    def single(self) -> pa.DataType:
        """Return the type that is the whole text."""
        return self._ended(self._type())

    def columns(self) -> pa.DataType:
        """Return the struct of the columns that are the whole text."""
        return self._ended(self._fields(lambda: not self._peek()))

    def _ended(self, kind: pa.DataType) -> pa.DataType:
        if self._peek():
            raise self._error(self._peek())
        return kind

    def _type(self) -> pa.DataType:
        name = self._next().lower()
        if name == "array":
            self._expect("<")
            kind = pa.list_(self._type())
            self._expect(">")
            return kind
        if name == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            kind = pa.map_(key, self._type())
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
            return pa.decimal128(precision, scale)
        try:
            return _PLAIN[_SYNONYMS.get(name, name)]
        except KeyError:
            raise self._error(name) from None

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

    def _fields(self, ended: Callable[[], bool]) -> pa.DataType:
        fields: list[tuple[str, pa.DataType]] = []
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
        return pa.struct(fields)

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
        where = f"at '{token}'" if token else "at its end"
        return OptionError(
            f"cannot read the schema '{self._text}' {where}; write it as 'id bigint, tags array<string>'"
        )

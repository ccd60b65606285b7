"""JSON from and for clients: field tables, checked values, and long texts, which are parsed in steps."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Generator, Mapping
from typing import Any, Final, NoReturn

from leveret.protocol.constants import INT64_END, SHORTSTR_MAX
from leveret.protocol.field_table import MAX_DEPTH, FieldTable, FieldValue, fold_value, longstr


def table_from_json(arguments: Mapping[str, Any]) -> FieldTable:
    """Convert JSON to a field table with RabbitMQ's types: integers become long, fractions double.

    Raises:
        ValueError: A value has no field type, or the nesting is too deep.
    """
    # This also protects the stack.
    check_nesting(arguments)
    return _table(arguments)


def _table(arguments: Mapping[str, Any]) -> FieldTable:
    return tuple((_name(key), field_from_json(value)) for key, value in arguments.items())


def table_to_json(table: FieldTable) -> dict[str, Any]:
    """Convert a field table to a JSON object; of duplicate keys the last one is shown."""
    return {key: fold_value(value, _single, _object, _list) for key, value in table}


def _name(key: str) -> str:
    if len(key.encode()) > SHORTSTR_MAX:
        raise ValueError(f"'{key[:32]}…' has more than {SHORTSTR_MAX} bytes")
    return key


def field_from_json(value: Any) -> FieldValue:
    """Convert a JSON value to the field that RabbitMQ makes of it.

    Raises:
        ValueError: It has no field type.
    """
    if isinstance(value, bool):
        return FieldValue("t", value)
    if isinstance(value, int):
        if not -INT64_END <= value < INT64_END:
            raise ValueError(f"{value} is too large, it takes more than 64 bits")
        return FieldValue("l", value)
    if isinstance(value, float):
        return FieldValue("d", value)
    if isinstance(value, str):
        return longstr(value)
    if isinstance(value, Mapping):
        return FieldValue("F", _table(value))
    if isinstance(value, list):
        return FieldValue("A", tuple(map(field_from_json, value)))
    if value is not None:
        # From YAML, for example a date.
        raise ValueError(f"{value!r} is not a JSON value")
    return FieldValue("V", None)


def _single(field: FieldValue) -> Any:
    if field.kind == "D":
        scale, unscaled = field.value
        return unscaled / 10**scale
    if field.kind == "V":
        # As in RabbitMQ, which does not read null back.
        return "undefined"
    return _text(field.value) if isinstance(field.value, bytes) else field.value


def _object(entries: list[tuple[str, Any]]) -> Any:
    return dict(entries)


def _list(values: list[Any]) -> Any:
    return values


def _text(octets: bytes) -> str:
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError:
        return f"Not UTF-8, base64 is: {base64.b64encode(octets).decode('ascii')}"


#: Values in a table sent as JSON. A table in an AMQP frame of 131,072 bytes has fewer.
VALUES_MAX: Final = 65_536
#: Begins the escape of a surrogate, which may be unpaired.
SURROGATES: Final = re.compile(r"\\u[dD]")


def parse_json(octets: bytes) -> Any:
    """Parse a JSON text. As in RabbitMQ, what is not UTF-8 in its strings becomes U+FFFD.

    Args:
        octets: The text in UTF-8; a byte order mark may be in front.
    Raises:
        ValueError: It is not JSON, or it contains NaN or infinite numbers.
    """
    text = decode_json(octets)
    try:
        value = decoder.decode(text)
        return replace_surrogates(value) if SURROGATES.search(text) else value
    except RecursionError:
        raise ValueError("nested too deep") from None


def decode_json(octets: bytes) -> str:
    """Decode a JSON text without its byte order mark."""
    return octets.decode("utf-8-sig", "replace")


def replace_surrogates(value: Any) -> Any:
    """Return a value with U+FFFD for unpaired surrogates, which come from escapes.

    Raises:
        RecursionError: It is nested too deep.
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return decoder.decode(replace_surrogates(json.dumps(value, ensure_ascii=False)))


def check_nesting(value: Any) -> None:
    """Refuse a value that is nested deeper, or contains more values, than a field table may.

    Args:
        value: A JSON value; an outermost object or list does not count.
    Raises:
        ValueError: It is nested too deep, or has too many values.
    """
    level: list[Any] = [value] if isinstance(value, Mapping | list) else []
    count = depth = 0
    while level:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested too deep, {MAX_DEPTH} levels are allowed")
        count += sum(map(len, level))
        if count > VALUES_MAX:
            raise ValueError(f"too many values, {VALUES_MAX} are allowed")
        inner = [element for each in level for element in (each.values() if isinstance(each, Mapping) else each)]
        level = [each for each in inner if isinstance(each, Mapping | list)]
        depth += 1


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large")
    return number


#: A JSON decoder that refuses NaN and infinite numbers.
decoder: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


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
        if end + len("e+") >= len(window) and self._position + len(window) < len(self._text):
            # A number may continue after the window, whose last characters may be its point, or "e+".
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

"""Filters for messages: by routing key, exchange, headers, properties, body, age and dead-lettering.

A filter is JSON, or text with one condition per line, such as `header.tenant=5`; see CONDITIONS. Looking at messages,
moving them and returning dead letters use it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias

from leveret.policies.dead_letter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from leveret.protocol.units import parse_duration

REASONS: Final = (REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT)
#: The forms of a condition in text.
CONDITIONS: Final = (
    "routing_key=<pattern>",
    "exchange=<pattern>",
    "queue=<name>",
    "reason=<why it was dead-lettered>",
    "header.<name>=<value>",
    "property.<name>=<value>",
    "body.<path>=<value>",
    "older_than=<duration>",
    "newer_than=<duration>",
)
#: Conditions of a filter at most, and the characters of each: name or path, and value as JSON.
CONDITIONS_MAX: Final = 100
CONDITION_MAX: Final = 1024

_TEXTS: Final = ("routing_key", "exchange", "reason", "queue")
_OBJECTS: Final = ("headers", "properties", "body")
_AGES: Final = ("older_than", "newer_than")
_MATCHES: Final = ("all", "any")
#: Names of properties by the type of their values.
_TEXT_PROPERTIES: Final = (
    "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type", "user_id",
    "app_id", "cluster_id",
)  # fmt: skip
_NUMBER_PROPERTIES: Final = ("delivery_mode", "priority", "timestamp")

#: A step of a path: a name, an index, or None for all elements of a list.
Step: TypeAlias = str | int | None
#: What values_at() gives for an element that has no value at the path.
NOTHING: Final = object()

_STEP: Final = re.compile(r"""\.?([^.\[\]"]+)|\[(\d{1,9})\]|\[(\*)\]|\["((?:[^"\\]|\\.)*)"\]""")
_STEPS_MAX: Final = 32


class FilterError(ValueError):
    """An invalid filter; the text says why."""


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter for messages. None and an empty mapping mean no condition.

    Args:
        routing_key: Shell pattern (``*``, ``?``, ``[…]``) for the routing key.
        exchange: Shell pattern for the exchange; the default exchange is "".
        headers: Required JSON values by header.
        reason: Reason for which it was dead-lettered last, one of REASONS.
        queue: Name of the queue that dead-lettered it last.
        properties: Required values by name of the property.
        body: Required JSON values by path; see json_path.py.
        older_than: It arrived in the queue at least this many seconds ago.
        newer_than: It arrived in the queue less than this many seconds ago.
        match: Whether "all" conditions must match, or "any" of them.
    """

    routing_key: str | None = None
    exchange: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None
    queue: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    older_than: float | None = None
    newer_than: float | None = None
    match: str = "all"

    @property
    def is_empty(self) -> bool:
        """Whether there is no condition, so that every message passes."""
        return not self.needs_message and not self.needs_headers and not self.properties and not self._has_route

    @property
    def needs_headers(self) -> bool:
        """Whether there are conditions on the headers."""
        return bool(self.headers) or self.reason is not None or self.queue is not None

    @property
    def needs_message(self) -> bool:
        """Whether there are conditions on what differs between messages of one envelope: body and age."""
        return bool(self.body) or self.older_than is not None or self.newer_than is not None

    def passes_envelope(
        self, exchange: str, routing_key: str, headers: Mapping[str, Any], properties: Mapping[str, Any]
    ) -> bool | None:
        """Return whether a message passes; None if this depends on passes_age() too.

        Args:
            exchange: Exchange that it was published to last.
            routing_key: Routing key that it was published with last.
            headers: Headers as JSON values.
            properties: Other properties as JSON values, by name.
        """
        is_any = self.match == "any"
        decided = is_any
        for holds in self._envelope_conditions(exchange, routing_key, headers, properties):
            if holds is decided:
                return decided
        if self.needs_message:
            return None
        return not decided or self.is_empty

    def passes_age(self, age: float) -> bool | None:
        """Return whether a message passes for which passes_envelope() has returned None; None if its body decides.

        Args:
            age: Seconds since its arrival in the queue.
        """
        results: list[bool] = []
        if self.older_than is not None:
            results.append(age >= self.older_than)
        if self.newer_than is not None:
            results.append(age < self.newer_than)
        decided = self.match == "any"
        if decided in results:
            return decided
        return None if self.body else not decided

    @property
    def _has_route(self) -> bool:
        return self.routing_key is not None or self.exchange is not None

    def _envelope_conditions(
        self, exchange: str, routing_key: str, headers: Mapping[str, Any], properties: Mapping[str, Any]
    ) -> Iterator[bool]:
        if self.routing_key is not None:
            yield fnmatchcase(routing_key, self.routing_key)
        if self.exchange is not None:
            yield fnmatchcase(exchange, self.exchange)
        for name, value in self.headers.items():
            yield name in headers and equal(headers[name], value)
        for name, value in self.properties.items():
            yield name in properties and equal(properties[name], value)
        if self.reason is not None:
            yield _last_death(headers).get("reason") == self.reason
        if self.queue is not None:
            yield _last_death(headers).get("queue") == self.queue


def read_filter(document: Any) -> MessageFilter:
    """Parse a filter from JSON.

    Args:
        document: Object whose keys are arguments of MessageFilter; text with a condition per line; None for no
            condition.
    Raises:
        FilterError: It is neither, has other keys or values, or more than CONDITIONS_MAX conditions, or a longer one
            than CONDITION_MAX.
    """
    if document is None:
        return MessageFilter()
    if isinstance(document, str):
        document = parse_conditions(document)
    if not isinstance(document, Mapping):
        raise FilterError("filter must be an object")
    known = MessageFilter.__dataclass_fields__
    unknown = [name for name in document if name not in known]
    if unknown:
        raise FilterError(f"filter: unknown key '{unknown[0]}', known are {', '.join(known)}")
    values = {name: value for name, value in document.items() if value is not None}
    _check_bounds(values)
    for name, value in values.items():
        values[name] = _READERS[name](name, value)
    return MessageFilter(**values)


def parse_conditions(text: str) -> dict[str, Any]:
    """Parse a filter from text into the JSON of read_filter().

    Args:
        text: One condition per line, in one of the forms of CONDITIONS or as a JSON object. The value of a header or
            of the body is JSON, such as 5 or true; what is not JSON is a text.
    Raises:
        FilterError: A condition has another form or an unknown key.
    """
    conditions: dict[str, Any] = {}
    _refuse_more(text, "characters", CONDITIONS_MAX * CONDITION_MAX)
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            conditions.update(_object_of(line))
        elif line.strip():
            _add_condition(conditions, line)
    return conditions


def _add_condition(conditions: dict[str, Any], line: str) -> None:
    key, equals, value = line.partition("=")
    if key.startswith("body") and key[4:5] in (".", "["):
        # A quoted name may contain the sign.
        key, equals, value = _split_path(line)
    if not equals:
        raise FilterError(f"filter takes <key>=<value>, not {line}")
    kind, _, name = key.partition(".")
    if key in (*_TEXTS, *_AGES, "match"):
        conditions[key] = value
    elif kind == "header" and name:
        conditions.setdefault("headers", {})[name] = json_or_text(value)
    elif kind == "property" and name:
        name = name.replace("-", "_")
        is_number = name in _NUMBER_PROPERTIES
        conditions.setdefault("properties", {})[name] = json_or_text(value) if is_number else value
    elif key.startswith("body") and len(key) > 5:
        conditions.setdefault("body", {})[key[4:].removeprefix(".")] = json_or_text(value)
    else:
        raise FilterError(f"filter takes {', '.join(CONDITIONS)}, not {line}")


def _split_path(line: str) -> tuple[str, str, str]:
    """Return the key, the sign and the value of a condition on the body."""
    found = re.fullmatch(r'((?:[^="]|"(?:[^"\\]|\\.)*")*)(=)(.*)', line)
    return (found[1], found[2], found[3]) if found is not None else (line, "", "")


def _object_of(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FilterError(f"filter is not a JSON object: {text}")
    return found


def json_or_text(text: str) -> Any:
    """Return a value: decoded if it is JSON, such as 5 or true, otherwise the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _check_bounds(values: Mapping[str, Any]) -> None:
    """Refuse a filter with too many conditions, or one that is too long. The work for a message depends on both."""
    conditions = [each for name, value in values.items() for each in _conditions_of(name, value)]
    _refuse_more(conditions, "conditions", CONDITIONS_MAX)
    for name, value in conditions:
        length = len(name) + (len(value) if isinstance(value, str) else _json_length(value))
        if length > CONDITION_MAX:
            raise FilterError(f"filter: the condition {name[:40]} has {length} characters, {CONDITION_MAX} are allowed")


def _conditions_of(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if name in _OBJECTS and isinstance(value, Mapping):
        yield from value.items()
    elif name != "match":
        yield name, value


def _json_length(value: Any) -> int:
    try:
        return len(json.dumps(value))
    except RecursionError:
        raise FilterError("filter: a value is nested too deeply") from None


def _refuse_more(given: Sized, what: str, most: int) -> None:
    if len(given) > most:
        raise FilterError(f"filter has {len(given)} {what}, {most} are allowed")


# -- values -----------------------------------------------------------------------------------------------


def _read_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise FilterError(f"filter: {name} must be a string")
    return value


def _read_reason(name: str, value: Any) -> str:
    if _read_text(name, value) not in REASONS:
        raise FilterError(f"filter: reason '{value}' is not one of {', '.join(REASONS)}")
    return str(value)


def _read_match(name: str, value: Any) -> str:
    if value not in _MATCHES:
        raise FilterError(f"filter: match '{value}' is not one of {', '.join(_MATCHES)}")
    return str(value)


def _read_object(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise FilterError(f"filter: {name} must be an object")
    return value


def _read_properties(name: str, value: Any) -> Mapping[str, Any]:
    for each, wanted in _read_object(name, value).items():
        if each not in _TEXT_PROPERTIES and each not in _NUMBER_PROPERTIES:
            known = ", ".join((*_TEXT_PROPERTIES, *_NUMBER_PROPERTIES))
            raise FilterError(f"filter: unknown property '{each}', known are {known}")
        if each in _TEXT_PROPERTIES and not isinstance(wanted, str):
            raise FilterError(f"filter: property {each} must be a string")
        if each in _NUMBER_PROPERTIES and (isinstance(wanted, bool) or not isinstance(wanted, int)):
            raise FilterError(f"filter: property {each} must be an integer")
    return dict(value)


def _read_body(name: str, value: Any) -> Mapping[str, Any]:
    for path in _read_object(name, value):
        try:
            parse_path(path)
        except ValueError as error:
            raise FilterError(f"filter: body: {error}") from None
    return dict(value)


def _read_age(name: str, value: Any) -> float:
    if isinstance(value, str):
        with suppress(ValueError):
            return float(parse_duration(value))
    elif isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    raise FilterError(f"filter: {name} must be a number of seconds, or a duration such as 30s, 15m, 1h or 7d")


_READERS: Final[dict[str, Callable[[str, Any], Any]]] = {
    **dict.fromkeys(_TEXTS, _read_text),
    **dict.fromkeys(_AGES, _read_age),
    "reason": _read_reason,
    "match": _read_match,
    "headers": _read_object,
    "properties": _read_properties,
    "body": _read_body,
}


def equal(value: Any, wanted: Any) -> bool:
    """Return whether JSON values are equal; true is not equal to 1."""
    return isinstance(value, bool) is isinstance(wanted, bool) and bool(value == wanted)


def _last_death(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first entry of the x-death header, which is the latest; empty if there is none."""
    deaths = headers.get("x-death")
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], Mapping):
        return deaths[0]
    return {}


# -- paths to values in JSON documents: names, indexes, and all elements of a list ----------------------------


def parse_path(text: str) -> tuple[Step, ...]:
    """Parse a path such as `order.items[0].sku`, `items[*].sku` or `["a.b"]`; a `$` in front is left out.

    Raises:
        ValueError: It has another form, or too many steps; the text says so.
    """
    rest = text.removeprefix("$")
    steps: list[Step] = []
    at = 0
    while at < len(rest):
        found = _STEP.match(rest, at)
        if found is None or len(steps) == _STEPS_MAX:
            raise ValueError(f"'{text}' is not a path such as order.items[0].sku or items[*].sku")
        name, index, every, quoted = found.groups()
        if quoted is not None:
            steps.append(_unquoted(text, quoted))
        else:
            steps.append(None if every else int(index) if index else name)
        at = found.end()
    return tuple(steps)


def values_at(document: Any, path: tuple[Step, ...]) -> Iterator[Any]:
    """Iterate over the values at a path, with NOTHING for each element that has none, so that a caller can count them.

    Args:
        document: A decoded JSON document.
    """
    #: What is left of the lists on the way, and the place in the path behind each.
    left: list[tuple[Iterator[Any], int]] = [(iter((document,)), 0)]
    while left:
        elements, at = left[-1]
        value = next(elements, left)
        if value is left:
            left.pop()
            continue
        while value is not NOTHING and at < len(path) and path[at] is not None:
            value = _step(value, path[at])
            at += 1
        if at < len(path) and isinstance(value, list):
            left.append((iter(value), at + 1))
        elif at < len(path):
            value = NOTHING
        yield value if at == len(path) else NOTHING


def _step(value: Any, step: Step) -> Any:
    """Return the value of a name or index."""
    if isinstance(step, str):
        return value.get(step, NOTHING) if isinstance(value, dict) else NOTHING
    return value[step] if isinstance(value, list) and step is not None and step < len(value) else NOTHING


def _unquoted(text: str, quoted: str) -> str:
    try:
        return str(json.loads(f'"{quoted}"'))
    except ValueError:
        raise ValueError(f"'{text}' has a name that is not a JSON string") from None

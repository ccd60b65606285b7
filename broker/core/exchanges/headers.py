"""The headers exchange: routes by header values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, TypeAlias

from leveret.broker.core.exchanges.base import Binding, BindingIdentity, Destination, Exchange
from leveret.broker.core.terms import Term, format_value, to_term
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import TYPE_NAMES, FieldTable, FieldValue, find

_ALL: Final = b"all"
#: Values of x-match, and whether headers that start with ``x-`` are compared.
_X_MATCH_VALUES: Final = {_ALL: False, b"any": False, b"all-with-x": True, b"any-with-x": True}

#: Bindings that are matched in one step.
_STEP: Final = 500

#: Key of a header: its name, and the number of earlier headers of that name in the table.
_Header: TypeAlias = tuple[str, int]


#: What a header must be: its key, and its term; None for any value.
_Condition: TypeAlias = "tuple[_Header, Term | None]"

#: Condition of the bindings that match every message.
_ALWAYS: Final[_Condition] = ("", -1), None


class _Pattern:
    """The arguments of a binding, prepared for matching.

    Args:
        arguments: Arguments of the binding, with a valid x-match.
        destination: Destination of the binding.

    Attributes:
        conditions: What headers must be.
        needs_all: Whether all conditions must hold; otherwise one is enough.
        indexed: Those of the conditions by which the exchange finds it.
    """

    __slots__ = ("conditions", "destination", "indexed", "needs_all")

    def __init__(self, arguments: FieldTable, destination: Destination) -> None:
        x_match = _x_match(arguments)
        with_x = _X_MATCH_VALUES[x_match]
        self.destination = destination
        self.needs_all = x_match.startswith(_ALL)
        self.conditions: list[_Condition] = [
            (header, None if field.kind == "V" else to_term(field))
            for header, field in _number(arguments)
            if header[0] != "x-match" and (with_x or not header[0].startswith("x-"))
        ]
        self.indexed: list[_Condition] = []

    def matches(self, headers: Mapping[_Header, Term]) -> bool:
        """Check whether a message with these headers, which meets one of the indexed conditions, matches."""
        if self.needs_all:
            for header, term in self.conditions:
                present = headers.get(header)
                if present is None or (term is not None and term != present):
                    return False
        return True


class HeadersExchange(Exchange):
    """Routes a message by comparing its headers to the arguments of bindings.

    With x-match ``all``, the default, all arguments must match a header, with ``any`` one is enough. Arguments that
    start with ``x-`` are ignored, except with ``all-with-x`` and ``any-with-x``. Numbers are compared by value, and a
    void argument matches any value. Duplicate names are compared in their order.

    Bindings are found by what one header must be, so that a message is compared with few of them.

    Spec: AMQP 0-9-1 section 3.1.3.4; the forms with x are RabbitMQ extensions.
    """

    __slots__ = ("_index", "_patterns")

    type_name: ClassVar[str] = "headers"
    description: ClassVar[str] = "AMQP headers exchange, as per the AMQP specification"
    uses_keys: ClassVar[bool] = False

    def _create_index(self) -> None:
        self.uses_headers = True
        self._patterns: dict[BindingIdentity, _Pattern] = {}
        self._index: dict[_Condition, dict[_Pattern, None]] = {}

    def _add(self, binding: Binding) -> None:
        _check_x_match(binding.arguments)
        pattern = self._patterns[binding.identity] = _Pattern(binding.arguments, binding.destination)
        pattern.indexed = self._to_index(pattern)
        for condition in pattern.indexed:
            self._index.setdefault(condition, {})[pattern] = None

    def _remove(self, binding: Binding) -> None:
        pattern = self._patterns.pop(binding.identity)
        for condition in pattern.indexed:
            bucket = self._index[condition]
            del bucket[pattern]
            if not bucket:
                del self._index[condition]

    def _to_index(self, pattern: _Pattern) -> list[_Condition]:
        """Return the conditions by which a new binding is to be found: of ``all`` the one that fewest others have."""
        if not pattern.needs_all:
            return list(dict.fromkeys(pattern.conditions))
        if not pattern.conditions:
            return [_ALWAYS]
        return [min(pattern.conditions, key=lambda condition: len(self._index.get(condition, ())))]

    def destinations(self, routing_key: str, headers: FieldTable) -> Iterable[Destination | None]:
        """Find the destinations whose arguments match the headers."""
        present = {header: to_term(field) for header, field in _number(headers)}
        candidates = list(self._index.get(_ALWAYS, ()))
        index = self._index
        for header, term in present.items():
            candidates += index.get((header, term), ())
            candidates += index.get((header, None), ())
        if len(candidates) <= _STEP:
            return [pattern.destination for pattern in candidates if pattern.matches(present)]
        return _match_in_steps(candidates, present)


def _match_in_steps(patterns: Sequence[_Pattern], present: Mapping[_Header, Term]) -> Iterator[Destination | None]:
    """Yield the destinations of very many bindings, with a None after each step."""
    for start in range(0, len(patterns), _STEP):
        for pattern in patterns[start : start + _STEP]:
            if pattern.matches(present):
                yield pattern.destination
        yield None


def _x_match(arguments: FieldTable) -> bytes:
    field = find(arguments, "x-match")
    form: bytes = _ALL if field is None else field.value
    return form


def _check_x_match(arguments: FieldTable) -> None:
    """Validate the x-match argument.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    field = find(arguments, "x-match")
    if field is None:
        return
    if field.kind != "S":
        raise precondition_failed(
            f"Invalid x-match field type {TYPE_NAMES[field.kind]} (value {format_value(field)}); expected longstr"
        )
    if field.value not in _X_MATCH_VALUES:
        raise precondition_failed(
            f"Invalid x-match field value {format_value(field)}; expected all, any, all-with-x, or any-with-x"
        )


def _number(table: FieldTable) -> Iterator[tuple[_Header, FieldValue]]:
    """Yield the entries of a table, with keys that distinguish duplicate names."""
    counts: dict[str, int] = {}
    for key, field in table:
        count = counts.get(key, 0)
        counts[key] = count + 1
        yield (key, count), field

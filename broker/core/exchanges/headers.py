"""The headers exchange: bindings name headers and the values they want."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.terms import Term, format_value, to_term
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import TYPE_NAMES, FieldTable, FieldValue, find

if TYPE_CHECKING:
    from leveret.broker.core.bindings import Binding, BindingIdentity, Destination

_ALL: Final = b"all"
#: The forms of x-match, and whether they look at headers that start with ``x-``.
_FORMS: Final = {_ALL: False, b"any": False, b"all-with-x": True, b"any-with-x": True}

#: Bindings that are looked at in one step.
_STEP: Final = 500

#: A header: its name, and how many of that name come before it in the table.
_Header: TypeAlias = tuple[str, int]


class _Pattern:
    """The arguments of a binding, made ready for matching.

    Args:
        arguments: Of the binding; x-match has been checked.
        destination: Of the binding.
    """

    __slots__ = ("destination", "needs_all", "wanted")

    def __init__(self, arguments: FieldTable, destination: Destination) -> None:
        form = _match_form(arguments)
        with_x = _FORMS[form]
        self.destination = destination
        self.needs_all = form.startswith(_ALL)
        #: Header and term; None where its presence is enough.
        self.wanted: list[tuple[_Header, Term | None]] = [
            (header, None if field.kind == "V" else to_term(field))
            for header, field in _number(arguments)
            if header[0] != "x-match" and (with_x or not header[0].startswith("x-"))
        ]

    def matches(self, headers: Mapping[_Header, Term]) -> bool:
        """Whether a message with these headers matches."""
        for header, term in self.wanted:
            present = headers.get(header)
            fits = present is not None and (term is None or term == present)
            if fits is not self.needs_all:
                return fits
        return self.needs_all


class HeadersExchange(Exchange):
    """Sends a message to where its headers are what the binding wants.

    The argument x-match says whether all wanted headers must fit (``all``, the default) or one is enough (``any``);
    arguments that start with ``x-`` count in the forms ``all-with-x`` and ``any-with-x`` only. Numbers fit by value;
    a void argument wants any value. Where a name stands several times, occurrences are compared in their order.

    Spec: AMQP 0-9-1 section 3.1.3.4; the forms with x are RabbitMQ extensions.
    """

    __slots__ = ("_patterns",)

    type_name: ClassVar[str] = "headers"
    uses_headers: ClassVar[bool] = True
    uses_keys: ClassVar[bool] = False

    def _create_index(self) -> None:
        self._patterns: dict[BindingIdentity, _Pattern] = {}

    def _add(self, binding: Binding) -> None:
        _check_match_form(binding.arguments)
        self._patterns[binding.identity] = _Pattern(binding.arguments, binding.destination)

    def _remove(self, binding: Binding) -> None:
        del self._patterns[binding.identity]

    def destinations(self, routing_key: str, headers: FieldTable) -> Iterable[Destination | None]:
        """Destinations whose arguments the headers fit."""
        present = {header: to_term(field) for header, field in _number(headers)}
        patterns = list(self._patterns.values())
        if len(patterns) <= _STEP:
            return [pattern.destination for pattern in patterns if pattern.matches(present)]
        return _match_slowly(patterns, present)


def _match_slowly(patterns: Sequence[_Pattern], present: Mapping[_Header, Term]) -> Iterator[Destination | None]:
    """The destinations of very many bindings, with a None after each step."""
    for start in range(0, len(patterns), _STEP):
        for pattern in patterns[start : start + _STEP]:
            if pattern.matches(present):
                yield pattern.destination
        yield None


def _match_form(arguments: FieldTable) -> bytes:
    field = find(arguments, "x-match")
    form: bytes = _ALL if field is None else field.value
    return form


def _check_match_form(arguments: FieldTable) -> None:
    """Refuse an x-match that is none of the four forms.

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
    if field.value not in _FORMS:
        raise precondition_failed(
            f"Invalid x-match field value {format_value(field)}; expected all, any, all-with-x, or any-with-x"
        )


def _number(table: FieldTable) -> Iterator[tuple[_Header, FieldValue]]:
    """Tell entries of the same name apart."""
    counts: dict[str, int] = {}
    for key, field in table:
        count = counts.get(key, 0)
        counts[key] = count + 1
        yield (key, count), field

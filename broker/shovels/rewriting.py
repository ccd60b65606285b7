"""What a shovel changes in messages: exchange and routing key, properties, and the headers that say where it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from leveret.broker.shovels.ends import Delivered, Outgoing
from leveret.policies.shovel import Shovel
from leveret.protocol.field_table import FieldTable, FieldValue, find, longstr, normalize
from leveret.protocol.properties import FLAGS, HEADERS, Properties, encode_headers, encode_text
from leveret.protocol.short_strings import encode_shortstr

_FORWARDED: Final = "x-shovelled"
_TIMESTAMP: Final = "x-shovelled-timestamp"
_FLAG_OF: Final = {name: flag for flag, name in FLAGS}
_OCTETS: Final = ("delivery_mode", "priority")


class Rewriter:
    """Changes messages.

    Args:
        shovel: What is changed.
        way: What the header ``x-shovelled`` says: where the messages come from and go to.
        seconds: Returns the time in seconds since 1970.
    """

    def __init__(self, shovel: Shovel, way: Mapping[str, str], seconds: Callable[[], int]) -> None:
        end = shovel.destination
        self._key = None if end.key is None else encode_shortstr(end.key)
        if end.queue is not None:
            self._exchange: bytes | None = encode_shortstr("")
            self._key = encode_shortstr(end.queue)
        else:
            self._exchange = None if end.exchange is None else encode_shortstr(end.exchange)
        self._properties = {_FLAG_OF[name]: _encode(name, value) for name, value in shovel.properties.items()}
        table = tuple((key, longstr(value)) for key, value in way.items())
        self._way = FieldValue("F", table) if shovel.adds_forward_headers else None
        self._seconds = seconds if shovel.adds_timestamp else None
        self._changes = bool(self._properties or self._way is not None or self._seconds is not None)
        # Messages in a row often have the same header.
        self._last: tuple[bytes, int] = b"", 0
        self._header = b""

    def rewrite(self, message: Delivered) -> Outgoing:
        """Return a message as it goes to the destination.

        Raises:
            ConnectionFault: Its properties cannot be decoded.
        """
        route = message.route
        if self._exchange is not None or self._key is not None:
            split = 1 + route[0]
            exchange = route[:split] if self._exchange is None else self._exchange
            route = exchange + (route[split:] if self._key is None else self._key)
        header = self._rewrite_header(message.header) if self._changes else message.header
        return Outgoing(route, header, message.body)

    def _rewrite_header(self, header: bytes) -> bytes:
        now = 0 if self._seconds is None else self._seconds()
        if self._last != (header, now):
            self._last, self._header = (header, now), self._new_header(header, now)
        return self._header

    def _new_header(self, header: bytes, now: int) -> bytes:
        read, changes = Properties(header), dict(self._properties)
        headers = read.headers()
        if self._way is not None:
            before = find(headers, _FORWARDED)
            earlier = before.value if before is not None and before.kind == "A" else ()
            headers = _with(headers, _FORWARDED, FieldValue("A", (self._way, *earlier)))
        if self._seconds is not None:
            headers = _with(headers, _TIMESTAMP, FieldValue("l", now))
        if self._way is not None or self._seconds is not None:
            changes[HEADERS] = encode_headers(normalize(headers))
        return read.replaced(changes)


def _with(headers: FieldTable, name: str, value: FieldValue) -> FieldTable:
    """Return headers with another one, sorted as RabbitMQ does."""
    return tuple(sorted((*(entry for entry in headers if entry[0] != name), (name, value)), key=lambda entry: entry[0]))


def _encode(name: str, value: Any) -> bytes:
    if name in _OCTETS:
        return bytes((min(255, max(0, int(value))),))
    return int(value).to_bytes(8, "big", signed=value < 0) if name == "timestamp" else encode_text(value)

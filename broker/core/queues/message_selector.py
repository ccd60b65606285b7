"""Applies a filter to messages: what those of one envelope share is decoded once, JSON bodies in short steps."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any, Final

from leveret.broker.core.json_values import NestedTooDeep, read_in_steps, table_to_json
from leveret.broker.core.messages import published_to
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.policies.message_filter import NOTHING, MessageFilter, equal, parse_path, values_at
from leveret.protocol.properties import Properties
from leveret.storage.message import Envelope, Message

#: A longer body is not decoded. In bytes.
BODY_MAX: Final = 1 << 20
#: Values that are compared for one body at most: enough for any body and one path.
COMPARED_MAX: Final = 1 << 20
#: Up to this length in bytes a body is decoded at once.
_AT_ONCE: Final = 8192
_DECODER: Final = json.JSONDecoder()
#: Values that are compared in one step.
_COMPARE_STEP: Final = 256

# Why a body cannot be checked.
TOO_LONG: Final = f"the filter reads no body of more than {BODY_MAX} bytes"
TOO_MUCH: Final = f"the filter compares no more than {COMPARED_MAX} values of a body"
TOO_DEEP: Final = "its body is nested too deeply"


class UnreadableBody(Exception):
    """A body may have the wanted values, but cannot be checked; the text says why."""


class BodyConditions:
    """Conditions on JSON bodies.

    Args:
        conditions: Required JSON values by path; see json_path.py.
        is_any: Whether one of them is enough.
    """

    def __init__(self, conditions: Mapping[str, Any], is_any: bool) -> None:
        self._conditions = [(parse_path(path), wanted) for path, wanted in conditions.items()]
        self._is_any = is_any

    def steps(self, body: bytes) -> Generator[None, None, bool]:
        """Check a body in steps of a fraction of a millisecond; return whether it fulfils them. No JSON does not.

        Raises:
            UnreadableBody: It cannot be checked.
        """
        if len(body) > BODY_MAX:
            raise UnreadableBody(TOO_LONG)
        try:
            document = yield from _decode(body)
        except (NestedTooDeep, RecursionError):
            raise UnreadableBody(TOO_DEEP) from None
        except ValueError:
            return False
        compared = 0
        for path, wanted in self._conditions:
            holds = False
            for value in values_at(document, path):
                compared += 1
                if compared > COMPARED_MAX:
                    raise UnreadableBody(TOO_MUCH)
                if compared % _COMPARE_STEP == 0:
                    yield
                if value is not NOTHING and _equal(value, wanted):
                    holds = True
                    break
            if holds is self._is_any:
                return holds
        return not self._is_any


def _decode(body: bytes) -> Generator[None, None, Any]:
    if len(body) <= _AT_ONCE:
        return json.loads(body)
    text = body.decode(json.detect_encoding(body), "surrogatepass")
    return (yield from read_in_steps(text, _DECODER))


def _equal(value: Any, wanted: Any) -> bool:
    try:
        return equal(value, wanted)
    except RecursionError:
        raise UnreadableBody(TOO_DEEP) from None


_SECOND = 1_000_000


class Selector:
    """Selects messages by a filter.

    Attributes:
        problem: Why the last message could not be checked, which counts as one that does not pass; "" if it could.
    """

    def __init__(self, message_filter: MessageFilter) -> None:
        self._filter = message_filter
        self._body = BodyConditions(message_filter.body, message_filter.match == "any")
        self._envelope: Envelope | None = None
        self._verdict: bool | None = True
        #: The message that is being checked, for wants().
        self._key: object = None
        self._checking: Generator[None, None, bool] | None = None
        self.problem = ""

    @property
    def is_checking(self) -> bool:
        """Whether wants() has begun with a message."""
        return self._checking is not None

    def steps(self, message: Message, arrived: int, now: int) -> Generator[None, None, bool]:
        """Check a message, in steps of a fraction of a millisecond; return whether it passes the filter.

        Args:
            arrived: Its arrival in the queue, in microseconds since 1970.
            now: Microseconds since 1970.
        """
        self.problem = ""
        if self._filter.is_empty:
            return True
        envelope = message.envelope
        if self._envelope is not envelope:
            self._envelope, self._verdict = envelope, self._verdict_on(envelope)
        if self._verdict is not None:
            return self._verdict
        by_age = self._filter.passes_age(max(0, now - arrived) / _SECOND)
        if by_age is not None:
            return by_age
        try:
            return (yield from self._body.steps(message.body))
        except UnreadableBody as error:
            self.problem = str(error)
            return False

    def wants(self, key: object, message: Message, arrived: int, now: int, time_slice: TimeSlice) -> bool | None:
        """Return whether a message passes the filter; None if the time slice was over before.

        Args:
            key: What the message has in common with itself, when it is given again to continue.
            message: See steps().
            arrived: See steps().
            now: See steps().
            time_slice: Ends the work; one step is always done.
        """
        if self._checking is None or self._key != key:
            self._key, self._checking = key, self.steps(message, arrived, now)
        try:
            while True:
                next(self._checking)
                if time_slice.is_over():
                    return None
        except StopIteration as end:
            self._checking = None
            return bool(end.value)

    def _verdict_on(self, envelope: Envelope) -> bool | None:
        exchange, routing_key = published_to(envelope)
        wanted = self._filter
        if not (wanted.needs_headers or wanted.properties):
            return wanted.passes_envelope(exchange, routing_key, {}, {})
        properties = Properties(envelope.header)
        headers = table_to_json(properties.headers()) if wanted.needs_headers else {}
        others = properties.as_dict(with_headers=False) if wanted.properties else {}
        return wanted.passes_envelope(exchange, routing_key, headers, others)

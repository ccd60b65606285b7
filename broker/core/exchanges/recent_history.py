"""The exchange x-recent-history: a fanout that also gives its last messages to new bindings."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Final

from leveret.broker.core.exchanges.fanout import FanoutExchange
from leveret.broker.core.messages.target import Remembering
from leveret.broker.core.terms import format_value
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import FieldTable, find
from leveret.storage.message import Message

_LENGTH: Final = "x-recent-history-length"
_LENGTH_DEFAULT: Final = 20
#: Types of the length that RabbitMQ accepts.
_LENGTH_KINDS: Final = "bsIlL"
_NO_STORE: Final = "x-recent-history-no-store"


class RecentHistoryExchange(FanoutExchange):
    """A fanout that remembers its last messages; every new binding gets them.

    They are in memory only: a restart forgets them, as in RabbitMQ 3.10.

    Spec: RabbitMQ's plugin rabbitmq_recent_history_exchange.
    """

    __slots__ = ("_messages",)

    type_name: ClassVar[str] = "x-recent-history"
    description: ClassVar[str] = "Recent History Exchange."
    has_memory: ClassVar[bool] = True

    def _create_index(self) -> None:
        # A header says whether a message is remembered.
        self.uses_headers = True
        self._messages: deque[Message] = deque(maxlen=_read_length(self.arguments))

    def remember(self, messages: Sequence[Message]) -> None:
        """Remember messages, and forget the oldest ones if they are too many."""
        self._messages.extend(messages)

    def remembered(self) -> list[Message]:
        """Return the remembered messages, oldest first."""
        return list(self._messages)

    def history(self, headers: FieldTable) -> Remembering | None:
        """Return itself, unless a header says that a message is not to be remembered."""
        field = find(headers, _NO_STORE)
        return self if field is None or field.kind != "t" or not field.value else None


def _read_length(arguments: FieldTable) -> int:
    """Return the number of messages to remember.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    field = find(arguments, _LENGTH)
    if field is None:
        return _LENGTH_DEFAULT
    if field.kind not in _LENGTH_KINDS or field.value <= 0:
        raise precondition_failed(f"Invalid argument {format_value(field)}, '{_LENGTH}' must be a positive integer")
    return int(field.value)

"""What the test client receives: messages, returns, confirms, and closes as exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tests.support import methods
from tests.support.content import Content
from tests.support.methods import Method, MethodType


class ReplyClosed(Exception):
    """A close method sent by the broker."""

    def __init__(self, code: int, text: str, class_id: int, method_id: int) -> None:
        super().__init__(f"{code} {text!r} ({class_id}/{method_id})")
        self.code = code
        self.text = text
        self.class_id = class_id
        self.method_id = method_id

    @classmethod
    def of(cls, close: Method) -> Self:
        """Make the exception of a received close method."""
        return cls(close.reply_code, close.reply_text, close.class_id, close.method_id)

    def check(self, code: int, text: str, ids: tuple[int, int] | MethodType | None = None) -> None:
        """Assert code, complete text and, unless None, the ids (or those of a pamqp method class)."""
        assert (self.code, self.text) == (code, text), f"{(code, text)} expected, got {self}"
        if ids is not None:
            expected = ids if isinstance(ids, tuple) else methods.ids(ids)
            assert self.ids == expected, f"{expected} expected, got {self}"

    @property
    def ids(self) -> tuple[int, int]:
        """Class and method id of the method that caused the close; 0/0 for none."""
        return self.class_id, self.method_id


class ChannelClosed(ReplyClosed):
    """channel.close from the broker."""


class ConnectionClosed(ReplyClosed):
    """connection.close from the broker."""


@dataclass(frozen=True)
class Delivery(Content):
    """A message of basic.deliver (with a consumer tag) or basic.get-ok (with a message count)."""

    exchange: str
    routing_key: str
    delivery_tag: int
    redelivered: bool
    consumer_tag: str | None = None
    message_count: int | None = None


@dataclass(frozen=True)
class Returned(Content):
    """A message of basic.return."""

    exchange: str
    routing_key: str
    reply_code: int
    reply_text: str


@dataclass(frozen=True)
class Confirm:
    """A basic.ack or basic.nack from the broker."""

    ack: bool
    delivery_tag: int
    multiple: bool

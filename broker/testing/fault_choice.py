"""What a fault happens to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from leveret.broker.core.clients import ClientConnection
from leveret.broker.session.channel_table import HANDLERS
from leveret.broker.testing.messages import PublishedMessage
from leveret.protocol.field_table import as_text, find
from leveret.protocol.methods import INDEX

#: Methods that clients send on channels.
_SENT_BY_CLIENTS: Final = {
    name for name, index in INDEX.items() if index in HANDLERS or name in ("channel.open", "basic.publish", "basic.ack")
}
_SETTLING: Final = frozenset({"basic.ack", "basic.nack", "basic.reject"})
#: Methods with the name of a queue, which faults can be chosen by.
_NAMING_QUEUES: Final = frozenset({"basic.consume", "basic.get"})


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Publishes, consumers or methods: all that is given has to be so.

    Attributes:
        queue: Name of a queue.
        vhost: Name of the virtual host.
        connection: Name that the client has given its connection, or ``CLIENT -> BROKER``.
        exchange: Name of an exchange.
        message: Returns whether a message is meant.
        times: How often the fault happens; None for always.
        method: Name of a method; "" for that of the fault.
    Raises:
        ValueError: A value is impossible.
    """

    queue: str | None = None
    vhost: str | None = None
    connection: str | None = None
    exchange: str | None = None
    message: Callable[[PublishedMessage], bool] | None = None
    times: int | None = None
    method: str = ""

    def __post_init__(self) -> None:
        method = self.method
        if self.times is not None and self.times < 1:
            raise ValueError(f"times={self.times}: a fault happens once at least")
        if not method or method == "basic.publish":
            return
        if method not in _SENT_BY_CLIENTS:
            known = "clients do not send it" if method in INDEX else "there is no such method"
            raise ValueError(f"{method!r}: {known}; name one that they send on channels, such as 'basic.ack'")
        if self.exchange is not None or self.message is not None:
            raise ValueError(f"{method} has no exchange= and message=; basic.publish has")
        if self.queue is not None and method not in _SETTLING | _NAMING_QUEUES:
            names = ", ".join(sorted({"basic.publish"} | _SETTLING | _NAMING_QUEUES))
            raise ValueError(f"{method} cannot be chosen by queue=; these can: {names}")

    def has_connection(self, connection: ClientConnection) -> bool:
        """Return whether a connection, with an open virtual host, is meant."""
        if self.vhost not in (None, connection.vhost_name):
            return False
        return self.connection is None or self.connection in (connection.name, _given_name(connection))

    def has_message(self, message: PublishedMessage, queue_names: Callable[[], Collection[str]]) -> bool:
        """Return whether a message is meant.

        Args:
            message: The message.
            queue_names: Returns the names of the queues that it is routed to.
        """
        if self.exchange not in (None, message.exchange):
            return False
        if self.message is not None and not self.message(message):
            return False
        return self.queue is None or self.queue in queue_names()


class Fault:
    """A fault while its ``with`` block lasts.

    Args:
        kind: What happens.
        choice: What it happens to.

    Attributes:
        count: How often it has happened: refused messages, held confirms, dropped connections, held consumers.
        error: What the function that chooses messages has raised first; raised again when the block ends.
    """

    def __init__(self, kind: str, choice: Choice) -> None:
        self.kind: Final = kind
        self.choice: Final = choice
        self.count = 0
        self.error: Exception | None = None

    @property
    def method(self) -> str:
        """Name of the method with which it happens."""
        return self.choice.method or ("basic.consume" if self.kind == "hold_deliveries" else "basic.publish")

    @property
    def is_over(self) -> bool:
        """Whether it has happened as often as it should."""
        return self.choice.times is not None and self.count >= self.choice.times

    def happens_to(self, message: PublishedMessage, queue_names: Callable[[], Collection[str]]) -> bool:
        """Return whether it happens to a message; see Choice.has_message(). Does not raise."""
        if self.is_over or self.error is not None:
            return False
        try:
            return self.choice.has_message(message, queue_names)
        except Exception as error:  # noqa: BLE001 - the test has to know, not the connection
            self.error = error
            return False

    def __repr__(self) -> str:
        given = {name: value for name, value in vars(self.choice).items() if value not in (None, "")}
        about = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"<Fault {self.kind}({about}), happened {self.count} times>"


def _given_name(connection: ClientConnection) -> str | None:
    name = find(connection.client_properties, "connection_name")
    return as_text(name) if name is not None and name.kind == "S" else None

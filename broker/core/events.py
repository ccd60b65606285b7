"""Events: one place where it is said that something was done, and by whom.

What changes the broker tells it here; the exchange of events and the audit log take it from here. Whoever handles a
method or a request sets the actor for as long as it does, so that what it changes need not know who wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from leveret.storage.clock import Clock

#: The name under which RabbitMQ does what nobody has asked for.
INTERNAL_USER: Final = "rmq-internal"


class Actor(NamedTuple):
    """Who does something.

    Args:
        user: Name of the user.
        host: The client's IP address; empty if there is none.
    """

    user: str
    host: str = ""


#: The broker itself.
BROKER: Final = Actor(INTERNAL_USER)


class Event(NamedTuple):
    """Something that was done.

    Args:
        kind: What was done, as in the routing keys of RabbitMQ's event exchange: ``queue.created``.
        time: Milliseconds since 1970.
        actor: Who has done it, or has caused it.
        by_broker: Whether it is a consequence, which the broker has done: the bindings of a queue go with it.
        fields: What it was done to: texts, numbers, lists and objects as in JSON, and field tables as received.
    """

    kind: str
    time: int
    actor: Actor
    by_broker: bool
    fields: Mapping[str, Any]

    @property
    def user(self) -> str:
        """The name of the user whom RabbitMQ names."""
        return INTERNAL_USER if self.by_broker else self.actor.user


class EventTaker(Protocol):
    """Takes events: an exchange, a log."""

    def wants(self, kind: str) -> bool:
        """Check whether it takes events of a kind now."""

    def take(self, event: Event) -> None:
        """Take an event. It must not change what events are about."""


class Events:
    """Tells takers what is done. An event that nobody wants is not even described.

    Args:
        clock: The broker's clock.

    Attributes:
        actor: Who does what is done now.
        node: Name of the node.
        takers: Who is told; nobody while definitions are restored.
    """

    __slots__ = ("_clock", "actor", "node", "takers")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.actor = BROKER
        self.node = ""
        self.takers: list[EventTaker] = []

    def tell(
        self,
        kind: str,
        describe: Callable[..., Mapping[str, Any]],
        *about: Any,
        actor: Actor | None = None,
        by_broker: bool = False,
    ) -> None:
        """Tell that something was done.

        Args:
            kind: See Event, like actor and by_broker.
            describe: Returns the fields of the event; only called if somebody wants it.
            about: Its arguments.
            actor: Who has done it; by default who does what is done now.
        """
        takers = [taker for taker in self.takers if taker.wants(kind)]
        if not takers:
            return
        who = self.actor if actor is None else actor
        event = Event(kind, self._clock.now() // 1000, who, by_broker, describe(*about))
        for taker in takers:
            taker.take(event)


def named(vhost_name: str, name: str) -> dict[str, Any]:
    """Return the fields of an event that only names an object of a virtual host."""
    return {"vhost": vhost_name, "name": name}

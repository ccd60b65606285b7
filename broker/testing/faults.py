"""Faults that tests cause: refused publishes, late confirms and deliveries, lost connections, a full disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from typing import Final, Protocol, TypedDict, TypeVar, Unpack, cast

from leveret.broker.app import App
from leveret.broker.core.queues.queue import Consumer, Queue
from leveret.broker.session.channel import Channel
from leveret.broker.session.connection import Connection
from leveret.broker.testing.environment import FillableFiles, NotRunningError
from leveret.broker.testing.fault_interceptor import Choice, Fault, FaultInterceptor
from leveret.broker.testing.messages import PublishedMessage, find_queue


def _redeliver(app: App, name: str, vhost: str | None) -> int:
    """Return the unacked messages of a queue to it, ignore their acknowledgements from now on, and count them."""
    queue = find_queue(app, name, vhost)
    if queue.traits.keeps_messages:
        raise ValueError(f"'{name}' is a stream: its messages are not requeued")
    connections = [cast("Connection", connection) for connection in app.broker.connections]
    return sum(_return(channel, queue) for connection in connections for channel in connection.channels)


def _return(channel: Channel, queue: Queue) -> int:
    """Return what a channel holds of a queue; return the number of messages."""
    unacked = channel.unacked
    count = 0
    for holder in {holder: None for holder, _ in unacked.held.values() if holder.queue is queue}:
        entries = unacked.take_expired(holder)
        count += len(entries)
        queue.release(holder, entries, "abandoned")
        if isinstance(holder, Consumer):
            channel.shared_prefetch.release(len(entries))
            queue.unblock(holder)
        queue.requeue(entries, abandoned=True)
    return count


T = TypeVar("T")

#: Tells the alarms of tests apart.
_CAUSES: Final = count()


class Call(Protocol):
    """Calls a function in the thread of the broker, and returns its result."""

    def __call__(self, function: Callable[[], T], /) -> T:
        """Call the function."""
        ...


class Where(TypedDict, total=False):
    """Where a fault happens: all that is given has to be so.

    Keys:
        queue: Name of a queue: messages that are routed to it, or deliveries from it.
        vhost: Name of the virtual host; by default that of the connection.
        connection: Name that the client has given its connection (``connection_name``), or ``CLIENT -> BROKER``.
    """

    queue: str
    vhost: str
    connection: str


class Which(Where, total=False):
    """Which publishes a fault happens to: all that is given has to be so.

    Keys:
        exchange: Name of an exchange; "" is the default one.
        message: Returns whether it happens to a message.
        times: How often it happens, at least 1; by default always.
    """

    exchange: str
    message: Callable[[PublishedMessage], bool]
    times: int


class Faults:
    """Causes faults in a broker. All but two are context managers, also in coroutines.

    Args:
        running: Returns the running broker.
        disk: Its disk.
        interceptor: Gets the events of its connections.
        call: Calls a function in the broker's thread; None if that is the one of the test.
    """

    def __init__(
        self,
        running: Callable[[], App],
        disk: FillableFiles,
        interceptor: FaultInterceptor,
        call: Call | None = None,
    ) -> None:
        self._running = running
        self._disk = disk
        self._interceptor = interceptor
        self._call = call

    def for_thread(self, call: Call) -> Faults:
        """Return the same for tests in another thread; `call` calls a function in the broker's."""
        return Faults(self._running, self._disk, self._interceptor, call)

    # -- publishing ---------------------------------------------------------------------------------------

    def refuse(self, **which: Unpack[Which]) -> AbstractContextManager[Fault]:
        """Have messages refused as a full queue does: basic.nack with confirms, otherwise they are dropped.

        Args:
            which: Which ones; see Which.
        """
        return self._within(self._interceptor.active("refuse", Choice(**which)))

    def hold_confirms(self, **which: Unpack[Which]) -> AbstractContextManager[Fault]:
        """Have messages taken, and their confirms (basic.ack or basic.nack) sent when the block ends.

        Args:
            which: Of which ones; see Which.
        """
        return self._within(self._interceptor.active("hold_confirms", Choice(**which)))

    # -- connections --------------------------------------------------------------------------------------

    def drop_connection(
        self, before: str = "", after: str = "", **which: Unpack[Which]
    ) -> AbstractContextManager[Fault]:
        """Have the socket reset of a client that sends a method.

        Args:
            before: Name of the method, such as ``basic.publish``: it has no effect.
            after: Name of the method: it has its effect, but the client gets no reply, no confirm.
            which: Which methods; see Which. ``exchange`` and ``message`` are for basic.publish; ``queue`` is for it,
                for acknowledgements of messages from the queue, for basic.consume and basic.get. ``times`` is 1 unless
                it is given.
        Raises:
            ValueError: Not one of both is given, clients do not send the method, or it has no such thing.
        """
        if bool(before) is bool(after):
            raise ValueError("give either before= or after=, the name of a method such as 'basic.publish'")
        which.setdefault("times", 1)
        choice = Choice(**which, method=before or after)
        return self._within(self._interceptor.active("drop_before" if before else "drop_after", choice))

    def drop_connections(self) -> int:
        """Reset the sockets of all AMQP clients, as a network does that fails; return how many there were.

        Raises:
            NotRunningError: The broker is not running.
        """
        return self._ask(lambda: self._running().drop_connections())

    # -- deliveries ---------------------------------------------------------------------------------------

    def hold_deliveries(self, **where: Unpack[Where]) -> AbstractContextManager[Fault]:
        """Have consumers get nothing until the block ends; basic.get does.

        Args:
            where: Which consumers; see Where.
        """
        return self._within(self._interceptor.active("hold_deliveries", Choice(**where), self._running()))

    def redeliver(self, queue: str, vhost: str | None = None) -> int:
        """Deliver the unacked messages of a queue again, as if their acknowledgements were lost; return their number.

        They are marked as redelivered. Late acknowledgements of their first delivery have no effect.

        Args:
            queue: Name of the queue.
            vhost: Name of its virtual host; by default the default one.
        Raises:
            LookupError: There is no such queue; the text names those that there are.
            ValueError: It is a stream, whose messages cannot be requeued.
            NotRunningError: The broker is not running.
        """
        return self._ask(lambda: _redeliver(self._running(), queue, vhost))

    # -- resources ----------------------------------------------------------------------------------------

    def alarm(self, resource: str = "memory") -> AbstractContextManager[None]:
        """Have the alarm of a resource set, so that publishers are blocked.

        Args:
            resource: ``memory`` or ``disk``.
        Raises:
            ValueError: It is another one.
            NotRunningError: The broker is not running.
        """
        return self._within(self._alarm(resource))

    def full_disk(self) -> AbstractContextManager[None]:
        """Have no space left for messages: writes fail, and the disk alarm is set.

        Definitions have room. When the block ends, what has waited is written within a second.

        Raises:
            NotRunningError: The broker is not running.
        """
        return self._within(self._full_disk())

    @contextmanager
    def _alarm(self, resource: str) -> Iterator[None]:
        if resource not in ("memory", "disk"):
            raise ValueError(f"there are alarms of memory and disk, not of {resource!r}")
        alarms, cause = self._running().broker.alarms, f"test {next(_CAUSES)}"
        alarms.set(resource, cause)
        try:
            yield
        finally:
            # After a restart these are the alarms of a broker that is gone.
            alarms.clear(resource, cause)

    @contextmanager
    def _full_disk(self) -> Iterator[None]:
        self._running()
        self._disk.fill()
        self._check_disk()
        try:
            yield
        finally:
            self._disk.make_room()
            with suppress(NotRunningError):
                self._check_disk()

    def _check_disk(self) -> None:
        self._running().check_disk()

    def _within(self, fault: AbstractContextManager[T]) -> AbstractContextManager[T]:
        return fault if self._call is None else _in_thread(fault, self._call)

    def _ask(self, function: Callable[[], T]) -> T:
        return function() if self._call is None else self._call(function)


@contextmanager
def _in_thread(fault: AbstractContextManager[T], call: Call) -> Iterator[T]:
    """Enter and leave a context manager in the broker's thread."""
    entered = call(fault.__enter__)
    try:
        yield entered
    finally:
        # A broker that was stopped meanwhile has no faults.
        with suppress(NotRunningError):
            call(lambda: fault.__exit__(None, None, None))

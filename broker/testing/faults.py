"""Faults that tests cause: refused publishes, late confirms and deliveries, lost connections, a full disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from typing import Final, TypedDict, TypeVar, Unpack

from leveret.broker.app import App
from leveret.broker.testing.errors import NotRunningError
from leveret.broker.testing.fault_choice import Choice, Fault
from leveret.broker.testing.fault_interceptor import FaultInterceptor
from leveret.broker.testing.full_disk import FillableDisk
from leveret.broker.testing.messages import PublishedMessage
from leveret.broker.testing.redelivery import redeliver

T = TypeVar("T")

#: Tells the alarms of tests apart.
_CAUSES: Final = count()


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
    """Causes faults in a broker of the running event loop. All but two are context managers, also in coroutines.

    Args:
        running: Returns the running broker.
        disk: Its disk.
        interceptor: Gets the events of its connections.
    """

    def __init__(self, running: Callable[[], App], disk: FillableDisk, interceptor: FaultInterceptor) -> None:
        self._running = running
        self._disk = disk
        self._interceptor = interceptor

    # -- publishing ---------------------------------------------------------------------------------------

    def refuse(self, **which: Unpack[Which]) -> AbstractContextManager[Fault]:
        """Have messages refused as a full queue does: basic.nack with confirms, otherwise they are dropped.

        Args:
            which: Which ones; see Which.
        """
        return self._interceptor.active("refuse", Choice(**which))

    def hold_confirms(self, **which: Unpack[Which]) -> AbstractContextManager[Fault]:
        """Have messages taken, and their confirms (basic.ack or basic.nack) sent when the block ends.

        Args:
            which: Of which ones; see Which.
        """
        return self._interceptor.active("hold_confirms", Choice(**which))

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
        return self._interceptor.active("drop_before" if before else "drop_after", choice)

    def drop_connections(self) -> int:
        """Reset the sockets of all AMQP clients, as a network does that fails; return how many there were.

        Raises:
            NotRunningError: The broker is not running.
        """
        return self._running().drop_connections()

    # -- deliveries ---------------------------------------------------------------------------------------

    def hold_deliveries(self, **where: Unpack[Where]) -> AbstractContextManager[Fault]:
        """Have consumers get nothing until the block ends; basic.get does.

        Args:
            where: Which consumers; see Where.
        """
        return self._interceptor.active("hold_deliveries", Choice(**where), self._running())

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
        return redeliver(self._running(), queue, vhost)

    # -- resources ----------------------------------------------------------------------------------------

    @contextmanager
    def alarm(self, resource: str = "memory") -> Iterator[None]:
        """Have the alarm of a resource set, so that publishers are blocked.

        Args:
            resource: ``memory`` or ``disk``.
        Raises:
            ValueError: It is another one.
            NotRunningError: The broker is not running.
        """
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
    def full_disk(self) -> Iterator[None]:
        """Have no space left for messages: writes fail, and the disk alarm is set.

        Definitions have room. When the block ends, what has waited is written within a second.

        Raises:
            NotRunningError: The broker is not running.
        """
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
        """Have the disk alarm set or cleared."""
        self._running().check_disk()


class ThreadFaults:
    """Causes faults in a broker in a thread; see Faults.

    Args:
        faults: The faults of the broker.
        call: Calls a function in its thread, and returns the result.
    """

    def __init__(self, faults: Faults, call: Callable[[Callable[[], object]], object]) -> None:
        self._faults = faults
        self._call = call

    def refuse(self, **which: Unpack[Which]) -> AbstractContextManager[Fault]:
        """Have messages refused; see Faults.refuse()."""
        return self._within(self._faults.refuse(**which))

    def hold_confirms(self, **which: Unpack[Which]) -> AbstractContextManager[Fault]:
        """Have confirms sent when the block ends; see Faults.hold_confirms()."""
        return self._within(self._faults.hold_confirms(**which))

    def drop_connection(
        self, before: str = "", after: str = "", **which: Unpack[Which]
    ) -> AbstractContextManager[Fault]:
        """Have the socket reset of a client that sends a method; see Faults.drop_connection()."""
        return self._within(self._faults.drop_connection(before, after, **which))

    def drop_connections(self) -> int:
        """Reset the sockets of all AMQP clients; see Faults.drop_connections()."""
        return self._ask(self._faults.drop_connections)

    def hold_deliveries(self, **where: Unpack[Where]) -> AbstractContextManager[Fault]:
        """Have consumers get nothing until the block ends; see Faults.hold_deliveries()."""
        return self._within(self._faults.hold_deliveries(**where))

    def redeliver(self, queue: str, vhost: str | None = None) -> int:
        """Deliver the unacked messages of a queue again; see Faults.redeliver()."""
        return self._ask(lambda: self._faults.redeliver(queue, vhost))

    def alarm(self, resource: str = "memory") -> AbstractContextManager[None]:
        """Have the alarm of a resource set; see Faults.alarm()."""
        return self._within(self._faults.alarm(resource))

    def full_disk(self) -> AbstractContextManager[None]:
        """Have no space left for messages; see Faults.full_disk()."""
        return self._within(self._faults.full_disk())

    @contextmanager
    def _within(self, fault: AbstractContextManager[T]) -> Iterator[T]:
        """Enter and leave a context manager in the broker's thread."""
        entered = self._ask(fault.__enter__)
        try:
            yield entered
        finally:
            # A broker that was stopped meanwhile has no faults.
            with suppress(NotRunningError):
                self._ask(lambda: fault.__exit__(None, None, None))

    def _ask(self, function: Callable[[], T]) -> T:
        results: list[T] = []
        self._call(lambda: results.append(function()))
        return results[0]

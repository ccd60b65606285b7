"""Input buffer and read flow control of a connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from weakref import ref

from leveret.protocol.events import Event, PublishRun, VariedRun
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.states import ConnectionState

if TYPE_CHECKING:
    from leveret.broker.session.connection import Connection

_PUBLISHES: Final = (PublishRun, VariedRun)
log = logging.getLogger("leveret.connection")

_BLOCKED: Final = INDEX["connection.blocked"]
_UNBLOCKED: Final = INDEX["connection.unblocked"]

#: Events after which the time is looked at; as a rule they are runs, and take some microseconds each.
_LOOK_EVERY: Final = 8


class Intake:
    """Feeds a connection with the events of its reader, as long as nothing holds it.

    Args:
        connection: The connection.
        transport: Its socket.

    Attributes:
        blocked: True while the connection is blocked by a resource alarm.
    """

    __slots__ = ("_held", "_is_read", "_overfull", "_owner", "_transport", "_work", "blocked")

    def __init__(self, connection: Connection, transport: asyncio.Transport) -> None:
        # Else the two would hold each other until the garbage collector looks.
        self._owner = ref(connection)
        self._transport = transport
        self._held: list[Event] = []
        self._is_read = True
        self._overfull = False
        #: What has to be done before the first of the held events.
        self._work: Callable[[], bool] | None = None
        self.blocked = False

    @property
    def _connection(self) -> Connection:
        connection = self._owner()
        assert connection is not None, "the connection holds its intake"
        return connection

    def process(self) -> None:
        """Have the connection handle what there is to read, until something holds it."""
        connection = self._connection
        output, reader, alarms = connection.output, connection.reader, connection.server.broker.alarms
        time_slice = connection.server.broker.turn.slice()
        while self._work is None and not (self.blocked or self._overfull):
            events = self._held or reader.events()
            if not events:
                if alarms.any and reader.is_inside_content():
                    self._must_wait(connection)
                return
            self._held = []
            for position, event in enumerate(events):
                if output.overfull and connection.state is ConnectionState.RUNNING:
                    self._wait_for_room(connection)
                elif not (alarms.any and type(event) in _PUBLISHES and self._must_wait(connection)):
                    connection.handle(event)
                    if self._work is None:
                        is_running = connection.state is ConnectionState.RUNNING
                        if position % _LOOK_EVERY or not is_running or not time_slice.is_over():
                            continue
                        self.work(_nothing)
                        self._held = events[position + 1 :]
                        return
                self._held = events[position:]
                return

    # -- events that take long ----------------------------------------------------------------------------

    def work(self, go_on: Callable[[], bool]) -> None:
        """Have some work done before anything else of this connection, with others served in between.

        Args:
            go_on: Does a slice of it; returns whether all is done.
        """
        connection = self._connection
        self._work = go_on
        self._read_or_not()
        connection.server.loop.call_soon(self._go_on_working)

    def _go_on_working(self) -> None:
        connection = self._owner()
        if connection is None or self._work is None:
            return
        try:
            is_done = self._work()
        except Exception:
            # The event itself fails then, and with it this connection.
            log.exception("AMQP connection %s: internal error", connection.name)
            is_done = True
        if not is_done:
            connection.server.loop.call_soon(self._go_on_working)
            return
        self._work = None
        self._read_or_not()
        self.process()

    def release(self) -> None:
        """Forget what has not been handled, and read on: the connection is over, and waits for its end only."""
        connection = self._connection
        self._held = []
        self._work = None
        self.blocked = self._overfull = False
        connection.server.broker.alarms.forget(connection)
        connection.output.resume = None
        self._read_or_not()

    # -- alarms -------------------------------------------------------------------------------------------

    def _must_wait(self, connection: Connection) -> bool:
        """A publish has come while an alarm is set, as far as its content header: block the connection."""
        if connection.state is not ConnectionState.RUNNING:
            return False
        alarms = connection.server.broker.alarms
        alarms.wait(connection, self._unblock)
        self._set_blocked(True, encode_method(0, _BLOCKED, alarms.reason))
        return True

    def _unblock(self) -> None:
        self._set_blocked(False, encode_method(0, _UNBLOCKED))
        self.process()

    def _set_blocked(self, blocked: bool, announcement: bytes) -> None:
        connection = self._connection
        self.blocked = blocked
        self._read_or_not()
        if connection.capabilities.blocked:
            connection.output.send(announcement)

    # -- clients that do not read -------------------------------------------------------------------------

    def _wait_for_room(self, connection: Connection) -> None:
        """The client reads too little of what it has asked for: read no more of its requests."""
        self._overfull = True
        connection.output.resume = self._go_on
        self._read_or_not()

    def _go_on(self) -> None:
        self._overfull = False
        self._read_or_not()
        self.process()

    def _read_or_not(self) -> None:
        """Read from the socket, or do not, as things are now."""
        reads = self._work is None and not (self.blocked or self._overfull)
        if reads is self._is_read or self._transport.is_closing():
            return
        self._is_read = reads
        # Its heartbeats are not read either.
        self._connection.pause_heartbeat(not reads)
        if reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


def _nothing() -> bool:
    """No work: only others have their turn."""
    return True

"""Input buffer and read flow control of a connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from weakref import ref

from leveret.protocol.events import Event, PublishRun, VariedRun
from leveret.protocol.faults import ConnectionFault, ReplyCode
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.states import ConnectionState

if TYPE_CHECKING:
    from leveret.broker.session.connection import Connection

_PUBLISHES: Final = (PublishRun, VariedRun)
log = logging.getLogger("leveret.connection")

_BLOCKED: Final = INDEX["connection.blocked"]
_UNBLOCKED: Final = INDEX["connection.unblocked"]

#: Number of events between two checks of the time slice; most events are runs, and take some microseconds each.
_CHECK_EVERY: Final = 8


class Intake:
    """Input buffer of a connection: passes events of the frame reader to it unless input is held.

    Args:
        connection: The connection.
        transport: The transport of the connection.

    Attributes:
        blocked: True while the connection is blocked by a resource alarm.
    """

    __slots__ = ("_held", "_is_handled", "_is_read", "_overfull", "_owner", "_transport", "_work", "blocked")

    def __init__(self, connection: Connection, transport: asyncio.Transport) -> None:
        # A weak reference: a cycle would be freed by the garbage collector only.
        self._owner = ref(connection)
        self._transport = transport
        self._held: list[Event] = []
        self._is_read = True
        self._overfull = False
        #: Unfinished work that precedes the held events.
        self._work: Callable[[], bool] | None = None
        #: Whether the event that needs the work has been handled.
        self._is_handled = False
        self.blocked = False

    @property
    def _connection(self) -> Connection:
        connection = self._owner()
        assert connection is not None, "the connection holds its intake"
        return connection

    def process(self) -> None:
        """Let the connection handle received events until input is held or the time slice is over."""
        connection = self._connection
        output, reader, alarms = connection.output, connection.reader, connection.server.broker.alarms
        time_slice = connection.server.broker.turn.slice()
        while self._work is None and not (self.blocked or self._overfull):
            events = self._held or reader.events()
            if not events:
                if alarms.any and reader.is_inside_content():
                    self._block(connection)
                return
            self._held = []
            for position, event in enumerate(events):
                if output.overfull and connection.state is ConnectionState.RUNNING:
                    self._pause_for_output(connection)
                elif not (alarms.any and type(event) in _PUBLISHES and self._block(connection)):
                    connection.handle(event)
                    if self._work is None:
                        is_running = connection.state is ConnectionState.RUNNING
                        if position % _CHECK_EVERY or not is_running or not time_slice.is_over():
                            continue
                        self.run_in_slices(_no_work)
                        self._held = events[position + 1 :]
                        return
                self._held = events[position + self._is_handled :]
                return

    # -- events that take long ----------------------------------------------------------------------------

    def run_in_slices(self, step: Callable[[], bool], is_handled: bool = False) -> None:
        """Run long work in slices before any other event of this connection; other connections run in between.

        Args:
            step: Runs one slice of the work; returns whether the work is finished.
            is_handled: Whether the current event has been handled; otherwise it is handled again after the work.
        """
        connection = self._connection
        self._work, self._is_handled = step, is_handled
        self._update_reading()
        connection.server.loop.call_soon(self._run_slice)

    def _run_slice(self) -> None:
        connection = self._owner()
        if connection is None or self._work is None:
            return
        try:
            is_done = self._work()
        except Exception:
            # The event is handled again, fails in the same way, and closes the connection.
            log.exception("AMQP connection %s: internal error", connection.name)
            if self._is_handled:
                connection.fail(ConnectionFault(ReplyCode.INTERNAL_ERROR), 0)
                return
            is_done = True
        if not is_done:
            connection.server.loop.call_soon(self._run_slice)
            return
        self._work = None
        self._is_handled = False
        self._update_reading()
        self.process()

    def release(self) -> None:
        """Discard unhandled events and resume reading: the connection is closed and waits for the end of input."""
        connection = self._connection
        self._held = []
        self._work = None
        self._is_handled = False
        self.blocked = self._overfull = False
        connection.server.broker.alarms.forget(connection)
        connection.output.resume = None
        self._update_reading()

    # -- alarms -------------------------------------------------------------------------------------------

    def _block(self, connection: Connection) -> bool:
        """Block the connection: a publish has arrived, at least up to its content header, during an alarm."""
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
        self._update_reading()
        if connection.capabilities.blocked:
            connection.output.send(announcement)

    # -- clients that do not read -------------------------------------------------------------------------

    def _pause_for_output(self, connection: Connection) -> None:
        """Stop reading requests: the client does not read the replies fast enough."""
        self._overfull = True
        connection.output.resume = self._resume
        self._update_reading()

    def _resume(self) -> None:
        self._overfull = False
        self._update_reading()
        self.process()

    def _update_reading(self) -> None:
        """Pause or resume reading from the socket, by the current state."""
        reads = self._work is None and not (self.blocked or self._overfull)
        if reads is self._is_read or self._transport.is_closing():
            return
        self._is_read = reads
        # Heartbeats are not read either.
        self._connection.pause_heartbeat(not reads)
        if reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


def _no_work() -> bool:
    """Do no work: only let other connections run."""
    return True

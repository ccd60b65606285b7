"""Input buffer and read flow control of a connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from leveret.broker.core.scheduling.turn import UNLIMITED, TimeSlice
from leveret.broker.session.output import Heartbeat, Output
from leveret.broker.session.shared_state import Server
from leveret.protocol.faults import ConnectionFault, ReplyCode
from leveret.protocol.frame_reader import Event, FrameReader, PublishRun, VariedRun
from leveret.protocol.methods import INDEX, encode_method

_PUBLISHES: Final = (PublishRun, VariedRun)
log = logging.getLogger("leveret.connection")

_BLOCKED: Final = INDEX["connection.blocked"]
_UNBLOCKED: Final = INDEX["connection.unblocked"]

#: Number of events between two checks of the time slice; most events are runs, and take some microseconds each.
_CHECK_EVERY: Final = 8


class Intake:
    """Input buffer of a connection: passes events of the frame reader to it unless input is held.

    Args:
        name: Name of the connection, for the log.
        heartbeat: Its heartbeats; those of the client are not read either while reading is paused.
        handle: Handles one event; does not raise.

    Attributes:
        blocked: True while the connection is blocked by a resource alarm.
    """

    __slots__ = (
        "_alarms",
        "_announces_alarms",
        "_clock",
        "_handle",
        "_heartbeat",
        "_held",
        "_is_handled",
        "_is_open",
        "_is_read",
        "_name",
        "_output",
        "_overfull",
        "_reader",
        "_taken",
        "_transport",
        "_turn",
        "_work",
        "blocked",
    )

    def __init__(
        self,
        name: str,
        server: Server,
        transport: asyncio.Transport,
        reader: FrameReader,
        output: Output,
        heartbeat: Heartbeat,
        handle: Callable[[Event], None],
    ) -> None:
        self._name = name
        self._turn, self._alarms = server.broker.turn, server.broker.alarms
        self._clock = server.broker.stores.engine.clock
        self._transport = transport
        self._reader = reader
        self._output = output
        self._heartbeat = heartbeat
        self._handle = handle
        self._held: list[Event] = []
        self._is_open = False
        self._announces_alarms = False
        self._is_read = True
        self._overfull = False
        #: Unfinished work that precedes the held events.
        self._work: Callable[[], bool] | None = None
        #: Microseconds that it has taken.
        self._taken = 0
        #: Whether the event that needs the work has been handled.
        self._is_handled = False
        self.blocked = False

    def open(self, announces_alarms: bool) -> None:
        """Hold input from now on when it is necessary: a virtual host is open.

        Args:
            announces_alarms: Whether the client expects connection.blocked.
        """
        self._is_open = True
        self._announces_alarms = announces_alarms

    def process(self) -> None:
        """Let the connection handle received events until input is held or the time slice is over."""
        reader, alarms = self._reader, self._alarms
        while self._is_ready():
            events = self._held or reader.events()
            if not events:
                if alarms.any and reader.is_inside_content():
                    self._block()
                return
            self._held = []
            self._clock.hold()
            try:
                is_done = self._handle_all(events)
            finally:
                self._clock.release()
            if not is_done:
                return

    def _handle_all(self, events: list[Event]) -> bool:
        """Handle events; return False, and hold the rest, once that is necessary."""
        output, alarms = self._output, self._alarms
        last = len(events) - 1
        time_slice = self._turn.slice() if last >= _CHECK_EVERY else UNLIMITED
        for position, event in enumerate(events):
            if output.overfull and self._is_open:
                self._pause_for_output()
            elif not (alarms.any and type(event) in _PUBLISHES and self._block()):
                self._handle(event)
                if self._work is None:
                    if position == last or position % _CHECK_EVERY or not self._is_open or not time_slice.is_over():
                        continue
                    self.run_in_slices(_no_work)
                    self._held = events[position + 1 :]
                    return False
            self._held = events[position + self._is_handled :]
            return False
        return True

    def _is_ready(self) -> bool:
        """Return whether events can be handled now."""
        return self._work is None and not (self.blocked or self._overfull)

    # -- events that take long ----------------------------------------------------------------------------

    @property
    def will_repeat(self) -> bool:
        """Whether the current event is handled again after some work."""
        return self._work is not None and not self._is_handled

    def run_in_slices(self, step: Callable[[], bool], is_handled: bool = False) -> None:
        """Run long work in slices before any other event of this connection; other connections run in between.

        Args:
            step: Runs one slice of the work; returns whether the work is finished.
            is_handled: Whether the current event has been handled; otherwise it is handled again after the work.
        """
        self._work, self._is_handled, self._taken = step, is_handled, 0
        self._update_reading()
        self._turn.slices.wait(0, self._go_on)

    def hold_until(self, answered: asyncio.Future[None]) -> None:
        """Handle the current event again when something is done, and hold later events of this connection until then.

        Args:
            answered: What is awaited.
        """
        self._work, self._is_handled, self._taken = answered.done, False, 0
        self._update_reading()
        answered.add_done_callback(self._answered)

    def _answered(self, answered: asyncio.Future[None]) -> None:
        if self._work is not None:
            self._turn.slices.wait(0, self._go_on)

    def _go_on(self, time_slice: TimeSlice) -> bool:
        if self._turn.is_stopped:
            return False
        begun = time_slice.used()
        self._turn.share_slice(self._run_slice, time_slice)
        self._taken += time_slice.used() - begun
        return False

    def _run_slice(self, time_slice: TimeSlice) -> None:
        if self._work is None:
            return
        try:
            is_done = self._work()
        except Exception:
            # The event is handled again, fails in the same way, and closes the connection.
            log.exception("AMQP connection %s: internal error", self._name)
            if self._is_handled:
                self._handle(ConnectionFault(ReplyCode.INTERNAL_ERROR))
                return
            is_done = True
        if not is_done:
            self._turn.slices.wait(self._taken, self._go_on)
            return
        self._work = None
        self._is_handled = False
        self._update_reading()
        self.process()

    # -- closing ------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Discard unhandled events and resume reading: the connection is closed and waits for the end of input."""
        self._is_open = False
        self._held = []
        self._work = None
        self._is_handled = False
        self.blocked = self._overfull = False
        self._alarms.forget(self)
        self._output.resume = None
        self._update_reading()

    def end(self) -> None:
        """Handle no more events: the socket is closed. Also breaks the reference cycle with the connection."""
        self._handle = _ignore

    # -- alarms -------------------------------------------------------------------------------------------

    def _block(self) -> bool:
        """Block the connection: a publish has arrived, at least up to its content header, during an alarm."""
        if not self._is_open:
            return False
        self._alarms.wait(self, self._unblock)
        self._set_blocked(True, encode_method(0, _BLOCKED, self._alarms.reason))
        return True

    def _unblock(self) -> None:
        self._set_blocked(False, encode_method(0, _UNBLOCKED))
        self.process()

    def _set_blocked(self, blocked: bool, announcement: bytes) -> None:
        self.blocked = blocked
        self._update_reading()
        if self._announces_alarms:
            self._output.send(announcement)

    # -- clients that do not read -------------------------------------------------------------------------

    def _pause_for_output(self) -> None:
        """Stop reading requests: the client does not read the replies fast enough."""
        self._overfull = True
        self._output.resume = self._resume
        self._update_reading()

    def _resume(self) -> None:
        self._overfull = False
        self._update_reading()
        self.process()

    def _update_reading(self) -> None:
        """Pause or resume reading from the socket, by the current state."""
        reads = self._is_ready()
        if reads is self._is_read or self._transport.is_closing():
            return
        self._is_read = reads
        self._heartbeat.paused = not reads
        if reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


def _no_work() -> bool:
    """Do no work: only let other connections run."""
    return True


def _ignore(event: Event) -> None:
    """Ignore an event."""

"""Delays replies to clients until the definitions that they depend on are on disk.

A separate thread commits definitions, one batch at a time. Changes made meanwhile go into the next batch. A reply that
depends on a definition waits for its batch, and all later output of the same connection waits behind it.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Protocol

from leveret.broker.core.resources.alarms import Alarms
from leveret.broker.core.scheduling.timers import RealCallLater, RealTimer
from leveret.broker.core.scheduling.turn import UNLIMITED, TimeSlice
from leveret.protocol.faults import ConnectionFault, ReplyCode
from leveret.storage.callbacks import call_each
from leveret.storage.commit import Copies
from leveret.storage.definitions_database import Changes, DefinitionsDatabase, Key

log = logging.getLogger("leveret.definitions")

#: Seconds of failed writes after which new definitions are refused.
ALARM_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 1.0
#: When callbacks are called, for the log.
_WRITTEN: Final = "after definitions were written"
#: Cause of the disk alarm.
_CAUSE: Final = "definitions"
#: Definitions of what has messages on disk.
_WITH_MESSAGES: Final = ("queue", "exchange")


class HoldableOutput(Protocol):
    """The output of a connection."""

    def hold(self) -> None:
        """Buffer all output until release() is called."""

    def release(self) -> None:
        """Send the buffered output."""


class DefinitionsGate:
    """Writes definitions and delays replies that depend on unwritten ones. It implements Journal.

    Without a database nothing is delayed.

    Args:
        call_later: The event loop's call_later, for retries.
        alarms: Where the disk alarm is set when definitions cannot be written for 30 s.
        new_slice: Returns a time slice for callbacks; by default one that is never over.

    Attributes:
        changes: Incremented by every change and every use of an unwritten definition.
        is_failing: Whether definitions could not be written for 30 s, so that new ones are refused.
        alarm_seconds: Those 30 s.
        copies: Other machines that must have a batch before replies are sent; None without.
        sync_copies: See StorageEngine. What a queue has dead-lettered must be on disk before the definition goes, as
            the messages of a queue without one are deleted at the next start.
    """

    def __init__(
        self,
        call_later: RealCallLater | None = None,
        alarms: Alarms | None = None,
        new_slice: Callable[[], TimeSlice] = lambda: UNLIMITED,
    ) -> None:
        self.alarm_seconds = ALARM_SECONDS
        self.copies: Copies | None = None
        self.sync_copies: Callable[[], Callable[[], bool] | None] = lambda: None
        self._call_later = call_later
        self._alarms = alarms or Alarms()
        self._new_slice = new_slice
        self._database: DefinitionsDatabase | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._call_soon_threadsafe: Callable[[Callable[[], None]], object] = lambda callback: None
        self._end_turn: Callable[[], None] = lambda: None
        #: Called by the next write().
        self._before_write: list[Callable[[], None]] = []
        self._pending_write: Future[Exception | None] | None = None
        self._batch: Changes = {}
        #: Whether what had messages was deleted since the last batch, even if it was declared again.
        self._removes_messages = False
        #: Number of the last batch that was started; changes go into the next one.
        self._started = 0
        #: Batch number of each definition that is not written yet.
        self._unwritten: dict[tuple[str, Key], int] = {}
        self._held: dict[HoldableOutput, int] = {}
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        #: The last batch that is written.
        self._written = 0
        self._is_calling = False
        self._retry: RealTimer | None = None
        self._alarm: RealTimer | None = None
        self.changes = 0
        self.is_failing = False

    def attach(
        self,
        database: DefinitionsDatabase,
        call_soon_threadsafe: Callable[[Callable[[], None]], object],
        end_turn: Callable[[], None],
    ) -> None:
        """Write all further changes to a database.

        Args:
            call_soon_threadsafe: Calls a function in the thread of the event loop.
            end_turn: Schedules the end of the turn, which calls write().
        """
        self._end_turn = end_turn
        self._database = database
        self._call_soon_threadsafe = call_soon_threadsafe
        self._writer = ThreadPoolExecutor(1, "definitions")

    # -- changing -----------------------------------------------------------------------------------------

    def put(self, kind: str, key: Key, value: Mapping[str, Any]) -> None:
        """Write a definition with the next batch."""
        if self._database is not None:
            self._database.put(kind, key, value)
            self._add_unwritten(kind, key)

    def delete(self, kind: str, key: Key) -> None:
        """Remove a definition with the next batch."""
        if self._database is not None:
            self._database.delete(kind, key)
            self._removes_messages = self._removes_messages or kind in _WITH_MESSAGES
            self._add_unwritten(kind, key)

    def before_write(self, callback: Callable[[], None]) -> None:
        """Call back at the end of the turn, before changes are written, for changes that are cheaper together."""
        if callback not in self._before_write:
            self._before_write.append(callback)
            self._end_turn()

    def _add_unwritten(self, kind: str, key: Key) -> None:
        if not self._unwritten:
            self._end_turn()
        self._unwritten[kind, key] = self._started + 1
        self.changes += 1

    def refuse_if_failing(self, what: str) -> None:
        """Refuse a new definition while definitions cannot be written.

        Args:
            what: Description of the object, for example ``queue 'q' in vhost '/'``.
        Raises:
            ConnectionFault: RESOURCE_ERROR (506).
        """
        if self.is_failing:
            raise ConnectionFault(
                ReplyCode.RESOURCE_ERROR, f"cannot declare {what}: definitions cannot be written to the disk"
            )

    # -- dependent replies --------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether all definitions are written."""
        return not self._unwritten

    @property
    def is_retrying(self) -> bool:
        """Whether the last write failed, and is tried again later."""
        return self._retry is not None

    def is_unwritten(self, kind: str, key: Key) -> bool:
        """Whether the last change of a definition is not written yet."""
        return (kind, key) in self._unwritten

    def rely_on(self, kind: str, key: Key) -> None:
        """Note that a reply depends on a definition."""
        if self._unwritten and (kind, key) in self._unwritten:
            self.changes += 1

    def hold(self, output: HoldableOutput) -> None:
        """Hold the output of a connection until all changes made so far are written."""
        if self._unwritten:
            self._held[output] = self._last_number()
            output.hold()

    def when_written(self, callback: Callable[[], None]) -> None:
        """Call back once all changes made so far are written, or at once if nothing is pending."""
        if self._unwritten:
            self._waiting.append((self._last_number(), callback))
        else:
            callback()

    def _last_number(self) -> int:
        # What a closed gate could not write is never written.
        return self._started + 1 if self._database is None or self._database.changes else self._started

    # -- writing ------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Start to write all changes as a batch, unless a batch is being written."""
        if self._before_write:
            callbacks, self._before_write = self._before_write, []
            call_each(callbacks, "before definitions are written")
        database = self._database
        if database is None or not database.changes or self._pending_write is not None or self._retry is not None:
            return
        assert self._writer is not None
        synced = self._sync_copies()
        self._batch = database.take()
        try:
            self._pending_write = self._writer.submit(self._commit, database, self._batch, synced)
        except RuntimeError:
            database.put_back(self._batch)
            raise
        self._started += 1

    def write_now(self) -> None:
        """Write all changes, and wait until they are written.

        Raises:
            sqlite3.Error: The write failed.
        """
        if self._database is None:
            return
        self._cancel(self._retry)
        self._retry = None
        error = None if self._pending_write is None else self._pending_write.result()
        if error is not None:
            self._database.put_back(self._batch)
        self._pending_write = None
        _await(self._sync_copies())
        self._database.commit()
        self._started += 1
        self._mark_written(self._started)
        while self._is_calling:
            self._call_waiting()

    def close(self) -> None:
        """Write all changes and stop the thread.

        Raises:
            sqlite3.Error: The write failed.
        """
        try:
            self.write_now()
        finally:
            self._cancel(self._retry, self._alarm)
            self._database = None
            if self._writer is not None:
                self._writer.shutdown()

    def abandon(self) -> None:
        """Stop the thread after the batch that it writes, as the death of the process does. Nothing is released."""
        self._cancel(self._retry, self._alarm)
        self._retry = self._alarm = self._pending_write = self._database = None
        if self._writer is not None:
            self._writer.shutdown()

    def _sync_copies(self) -> Callable[[], bool] | None:
        """Return what waits until the changes may be written; None if they may be written at once."""
        removes, self._removes_messages = self._removes_messages, False
        return self.sync_copies() if removes else None

    def _commit(
        self, database: DefinitionsDatabase, batch: Changes, synced: Callable[[], bool] | None
    ) -> Exception | None:
        """Write a batch; runs in the thread."""
        failure: Exception | None = None
        try:
            _await(synced)
            database.write(batch)
        except Exception as error:  # noqa: BLE001 - after any error the batch has not been written
            failure = error
        if self.copies is None or failure is not None:
            self._call_soon_threadsafe(self._finished)
        else:
            self.copies.when_copied(self._finish_soon)
        return failure

    def _finish_soon(self) -> None:
        self._call_soon_threadsafe(self._finished)

    def _finished(self) -> None:
        """Handle the end of a write, successful or not."""
        if self._pending_write is None:
            return
        error, self._pending_write = self._pending_write.result(), None
        if error is None:
            self._mark_written(self._started)
            self.write()
            return
        assert self._database is not None
        # It is retried together with the changes made since.
        self._database.put_back(self._batch)
        assert self._call_later is not None
        self._retry = self._call_later(_RETRY_SECONDS, self._try_again)
        if self._alarm is None:
            log.error("cannot save definitions: %s; replies that depend on them wait, trying again", error)
            self._alarm = self._call_later(self.alarm_seconds, self._set_alarm)

    def _try_again(self) -> None:
        self._retry = None
        self.write()

    def _set_alarm(self) -> None:
        log.error(
            "definitions could not be saved for %d s: the disk alarm is set, and nothing durable can be declared",
            self.alarm_seconds,
        )
        self.is_failing = True
        self._alarms.set("disk", _CAUSE)

    def _mark_written(self, number: int) -> None:
        """Release the output and the callbacks that wait for a batch or an earlier one."""
        self._unwritten = {each: batch for each, batch in self._unwritten.items() if batch > number}
        if self._alarm is not None:
            self._cancel(self._alarm)
            self._alarm = None
            log.warning("definitions are saved again")
        if self.is_failing:
            self.is_failing = False
            self._alarms.clear("disk", _CAUSE)
        outputs = [output for output, batch in self._held.items() if batch <= number]
        for output in outputs:
            del self._held[output]
        call_each([output.release for output in outputs], _WRITTEN)
        self._written = number
        if not self._is_calling:
            self._call_waiting()

    def _call_waiting(self) -> None:
        """Run the callbacks that wait for written batches; later ones in later time slices."""
        time_slice, waiting = self._new_slice(), self._waiting
        self._is_calling = False
        while waiting and waiting[0][0] <= self._written:
            if time_slice.is_over():
                self._is_calling = True
                assert self._call_later is not None
                self._call_later(0, self._call_waiting)
                return
            call_each([waiting.popleft()[1]], _WRITTEN)

    def _cancel(self, *timers: RealTimer | None) -> None:
        for timer in timers:
            if timer is not None:
                timer.cancel()


def _await(synced: Callable[[], bool] | None) -> None:
    if synced is not None and not synced():
        raise sqlite3.OperationalError("copies of messages that have left a deleted queue could not be synced")


#: A gate without a database, which delays nothing.
ALWAYS_OPEN: Final = DefinitionsGate()

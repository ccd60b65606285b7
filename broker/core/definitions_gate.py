"""The gate between what is declared and what clients are told of it: it opens when the definitions are on disk.

Definitions are committed by a thread of their own, one batch at a time: what the turns meanwhile change goes into the
next one. An answer that relies on a definition waits for its batch, with all that its connection is sent after it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Protocol

from leveret.broker.core.alarms import Alarms
from leveret.broker.core.timers import Timer, Timers
from leveret.protocol.faults import ConnectionFault, ReplyCode
from leveret.storage.definitions import Changes, DefinitionsDatabase, Key

log = logging.getLogger("leveret.definitions")

#: How long definitions may fail to be written before new ones are refused, in seconds.
ALARM_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 1.0
#: What the disk alarm is set for.
_CAUSE: Final = "definitions"


class Held(Protocol):
    """The output of a connection."""

    def hold(self) -> None:
        """Send nothing until release() is called."""

    def release(self) -> None:
        """Send what has been held."""


class DefinitionsGate:
    """Writes definitions, and holds back what relies on those that are not written yet. It implements Journal.

    Without a database nothing has to be waited for.

    Args:
        timers: The clock.
        alarms: Has the disk alarm, which is set when definitions cannot be written for 30 s.

    Attributes:
        changes: Grows with every change, and whenever somebody is told of what is not written yet.
        is_failing: Definitions could not be written for 30 s: new ones are refused.
    """

    def __init__(self, timers: Timers | None = None, alarms: Alarms | None = None) -> None:
        self._timers = timers
        self._alarms = alarms or Alarms()
        self._database: DefinitionsDatabase | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._call_soon_threadsafe: Callable[[Callable[[], None]], object] = lambda callback: None
        self._end_turn: Callable[[], None] = lambda: None
        self._under_way: Future[Exception | None] | None = None
        self._batch: Changes = {}
        #: Number of the batch that was started last; what is changed now goes into the next one.
        self._started = 0
        #: Number of the batch of each definition that is not written yet.
        self._unwritten: dict[tuple[str, Key], int] = {}
        self._held: dict[Held, int] = {}
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._retry: Timer | None = None
        self._alarm: Timer | None = None
        self.changes = 0
        self.is_failing = False

    def attach(
        self,
        database: DefinitionsDatabase,
        call_soon_threadsafe: Callable[[Callable[[], None]], object],
        end_turn: Callable[[], None],
    ) -> None:
        """Write into a database from now on.

        Args:
            database: Where to.
            call_soon_threadsafe: Hands a function to the thread of the event loop.
            end_turn: Has the turn end, which calls write().
        """
        self._end_turn = end_turn
        self._database = database
        self._call_soon_threadsafe = call_soon_threadsafe
        self._thread = ThreadPoolExecutor(1, "definitions")

    # -- changing -----------------------------------------------------------------------------------------

    def put(self, kind: str, key: Key, value: Mapping[str, Any]) -> None:
        """Write a definition with the next batch."""
        if self._database is not None:
            self._database.put(kind, key, value)
            self._note(kind, key)

    def delete(self, kind: str, key: Key) -> None:
        """Remove a definition with the next batch."""
        if self._database is not None:
            self._database.delete(kind, key)
            self._note(kind, key)

    def _note(self, kind: str, key: Key) -> None:
        if not self._unwritten:
            self._end_turn()
        self._unwritten[kind, key] = self._started + 1
        self.changes += 1

    def refuse_if_failing(self, what: str) -> None:
        """Refuse something new that would have to be written.

        Args:
            what: For example ``queue 'q' in vhost '/'``.
        Raises:
            ConnectionFault: RESOURCE_ERROR (506).
        """
        if self.is_failing:
            raise ConnectionFault(
                ReplyCode.RESOURCE_ERROR, f"cannot declare {what}: definitions cannot be written to the disk"
            )

    # -- relying on it ------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether all definitions are written."""
        return not self._unwritten

    def is_unwritten(self, kind: str, key: Key) -> bool:
        """Whether the last change of a definition is not written yet."""
        return (kind, key) in self._unwritten

    def rely_on(self, kind: str, key: Key) -> None:
        """Note that somebody is told of a definition."""
        if self._unwritten and (kind, key) in self._unwritten:
            self.changes += 1

    def hold(self, output: Held) -> None:
        """Hold all that a connection is sent until everything that has been changed so far is written."""
        if self._unwritten:
            self._held[output] = self._last_number()
            output.hold()

    def when_written(self, callback: Callable[[], None]) -> None:
        """Call back once everything that has been changed so far is written; at once if it is."""
        if self._unwritten:
            self._waiting.append((self._last_number(), callback))
        else:
            callback()

    def _last_number(self) -> int:
        assert self._database is not None
        return self._started + 1 if self._database.has_changes else self._started

    # -- writing ------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Have written what has been changed; what is changed while a batch is being written is the next one."""
        database = self._database
        if database is None or not database.has_changes or self._under_way is not None or self._retry is not None:
            return
        assert self._thread is not None
        self._batch = database.take()
        try:
            self._under_way = self._thread.submit(self._commit, database, self._batch)
        except RuntimeError:
            database.put_back(self._batch)
            raise
        self._started += 1

    def write_now(self) -> None:
        """Write everything, and wait for that.

        Raises:
            sqlite3.Error: It cannot be written.
        """
        if self._database is None:
            return
        self._cancel(self._retry)
        self._retry = None
        error = None if self._under_way is None else self._under_way.result()
        if error is not None:
            self._database.put_back(self._batch)
        self._under_way = None
        self._database.commit()
        self._started += 1
        self._opened(self._started)

    def close(self) -> None:
        """Write everything, and end.

        Raises:
            sqlite3.Error: It cannot be written.
        """
        try:
            self.write_now()
        finally:
            self._cancel(self._retry, self._alarm)
            self._database = None
            if self._thread is not None:
                self._thread.shutdown()

    def _commit(self, database: DefinitionsDatabase, batch: Changes) -> Exception | None:
        """Write a batch, in the thread."""
        failure: Exception | None = None
        try:
            database.write(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, the batch has not been written
            failure = error
        self._call_soon_threadsafe(self._finished)
        return failure

    def _finished(self) -> None:
        """A batch has been written, or not."""
        if self._under_way is None:
            return
        error, self._under_way = self._under_way.result(), None
        if error is None:
            self._opened(self._started)
            self.write()
            return
        assert self._database is not None
        # With what has been changed since, in a transaction of its own.
        self._database.put_back(self._batch)
        assert self._timers is not None
        self._retry = self._timers.call_later(_RETRY_SECONDS, self._try_again)
        if self._alarm is None:
            log.error("cannot save definitions: %s; answers that rely on them wait, trying again", error)
            self._alarm = self._timers.call_later(ALARM_SECONDS, self._set_alarm)

    def _try_again(self) -> None:
        self._retry = None
        self.write()

    def _set_alarm(self) -> None:
        log.error(
            "definitions could not be saved for %d s: the disk alarm is set, and nothing durable can be declared",
            ALARM_SECONDS,
        )
        self.is_failing = True
        self._alarms.set("disk", _CAUSE)

    def _opened(self, number: int) -> None:
        """All up to a batch is written: send what was held for it."""
        self._unwritten = {each: batch for each, batch in self._unwritten.items() if batch > number}
        if self._alarm is not None:
            self._cancel(self._alarm)
            self._alarm = None
            log.warning("definitions are saved again")
        if self.is_failing:
            self.is_failing = False
            self._alarms.clear("disk", _CAUSE)
        for output in [output for output, batch in self._held.items() if batch <= number]:
            del self._held[output]
            output.release()
        # What is in the event log may have waited for this, too.
        self._end_turn()
        waiting, self._waiting = self._waiting, []
        for batch, callback in waiting:
            if batch > number:
                self._waiting.append((batch, callback))
            else:
                callback()

    def _cancel(self, *timers: Timer | None) -> None:
        for timer in timers:
            if timer is not None:
                timer.cancel()


#: For what keeps no definitions.
OPEN: Final = DefinitionsGate()

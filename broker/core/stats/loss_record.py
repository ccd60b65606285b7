"""Losses of messages: counted from the event log at a start, kept in a file, and told in the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from leveret.broker.core.broker import Broker
from leveret.broker.core.counters.counters import ExchangeCounters, QueueCounters
from leveret.broker.core.counters.history import STEP, LossCounters
from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.exchanges.types import DelayedExchange
from leveret.broker.core.scheduling.turn import PeriodicWork
from leveret.broker.core.vhosts.vhost import Counters, DeletedObjects, VirtualHost
from leveret.policies.dead_letter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REASONS, REJECTED
from leveret.storage.disk.files import Files, UnreadableFileError, replace_file
from leveret.storage.engine import StorageEngine
from leveret.storage.event_format import DEAD_LETTERED, LETTER_REASON_SHIFT, TOLD, Event, EventKind
from leveret.storage.event_log import EventPosition
from leveret.storage.format import crc_of, pack_checked

#: Drop reasons of queue counters by kind of event.
DROP_REASONS: Final[Mapping[int, str]] = {
    EventKind.MAXLEN: MAXLEN,
    EventKind.MAXLEN_BYTES: MAXLEN,
    EventKind.EXPIRED: EXPIRED,
    EventKind.REJECT: REJECTED,
    EventKind.DELIVERY_LIMIT: DELIVERY_LIMIT,
}
#: The bits of a reason in the flags of an event.
_REASON_MASK: Final = 7


def rows_of_events(events: Iterable[Event], exchanges: Collection[int] = ()) -> dict[int, list[int]]:
    """Sum up the losses in events.

    Args:
        exchanges: Numbers on disk of exchanges with delayed messages; all others are queues.
    Returns:
        By number on disk, a row with one number for each of the LOSS_FIELDS of QueueCounters or ExchangeCounters.
    """
    found: dict[int, list[int]] = {}
    for event in events:
        is_exchange = event.qid in exchanges
        changes = _changes_of_exchange(event) if is_exchange else _changes_of_queue(event)
        if changes:
            fields = ExchangeCounters.LOSS_FIELDS if is_exchange else QueueCounters.LOSS_FIELDS
            row = found.setdefault(event.qid, [0] * len(fields))
            for name in changes:
                row[fields.index(name)] += event.length
    return found


def _changes_of_exchange(event: Event) -> tuple[str, ...]:
    """Return the names of the counters of an exchange that an event of its delayed messages increases."""
    if event.kind == EventKind.NOT_ROUTED:
        return "drop_unroutable", "lost"
    if event.kind == EventKind.REFUSED:
        return "refuse", "refuse_told" if event.flags & TOLD else "lost"
    return ()


def _changes_of_queue(event: Event) -> tuple[str, ...]:
    """Return the names of the counters that an event increases, none if its messages are not lost."""
    is_letter = event.flags & DEAD_LETTERED
    lost = "refuse_told" if event.flags & TOLD else "lost"
    if event.kind == EventKind.PURGED:
        return ("drop_purged",)
    if event.kind == EventKind.REFUSED:
        return ("refuse", f"dead_letter_{MAXLEN}") if is_letter else ("refuse", lost)
    if event.kind == EventKind.DEAD_LETTER_LOST:
        reason = event.flags >> LETTER_REASON_SHIFT & _REASON_MASK
        return (lost, f"dead_letter_lost_{REASONS[reason - 1]}") if 1 <= reason <= len(REASONS) else (lost,)
    dropped = DROP_REASONS.get(event.kind)
    if dropped is None:
        return ()
    return (f"drop_{dropped}", f"dead_letter_{dropped}") if is_letter else (f"drop_{dropped}", "lost")


log = logging.getLogger("leveret.statistics")

FILE: Final = "losses.json"
_FORMAT: Final = 1
#: Objects per step.
_STEP_OBJECTS: Final = 100
#: Growth of the event log in bytes after which the file is written even without new losses, to limit what a restart
#: has to read.
_EVENT_BYTES: Final = 4 << 20
#: Maximum share of time spent on writing.
_BUSY_SHARE: Final = 0.02

_Entry: TypeAlias = "dict[str, Any]"
_KINDS: Final[dict[str, type[QueueCounters] | type[ExchangeCounters]]] = {
    "queue": QueueCounters,
    "exchange": ExchangeCounters,
}


class LossRecord:
    """Saves and restores the losses of a broker.

    Args:
        engine: Storage engine with the event log.
        write: Writes pending messages and events.
        data_dir: Directory of the file.
        files: The file system interface.
    """

    def __init__(
        self, broker: Broker, engine: StorageEngine, write: Callable[[], object], data_dir: Path, files: Files
    ) -> None:
        self._broker = broker
        self._engine = engine
        self._write_events = write
        self._data_dir = data_dir
        self._files = files
        self._pool = ThreadPoolExecutor(1, "losses")
        self._writing: Future[float] | None = None
        self._work = PeriodicWork(broker.timers, self._pause, lambda: self._steps(at_once=False), "losses were saved")
        #: End of the event log when the current step began.
        self._position: EventPosition | None = None
        #: Losses and end of the event log when the file was last written.
        self._written: tuple[list[tuple[int, ...]], EventPosition] | None = None

    # --- at the start -------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Restore losses from the file and later events. Queues and exchanges must have been restored before."""
        found = self._read()
        now = self._broker.timers.seconds() // STEP * STEP
        if found is not None:
            self._broker.losses_since = int(found["since"])
            by_qid: dict[int, tuple[EventPosition, LossCounters]] = {}
            # Objects that turn out to be deleted come after those that are recorded as deleted.
            for entry in sorted(found["objects"], key=lambda each: str(each["state"])):
                try:
                    self._restore_entry(entry, now, by_qid)
                except (ValueError, KeyError, TypeError, OverflowError) as error:
                    log.warning("%s: an entry is skipped: %r", self._data_dir / FILE, error)
            self._add_events(EventPosition(*found["events"]), by_qid)
        self.save()

    def _read(self) -> dict[str, Any] | None:
        path = self._data_dir / FILE
        try:
            fields: dict[str, Any] = json.loads(path.read_bytes())
            if fields.pop("crc") == crc_of(fields) and fields["format"] == _FORMAT:
                return fields
            log.warning("%s is damaged, or of a newer version: losses are counted from now on", path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s cannot be read (%s): losses are counted from now on", path, error)
        return None

    def _restore_entry(self, entry: _Entry, now: int, by_qid: dict[int, tuple[EventPosition, LossCounters]]) -> None:
        vhost = self._broker.vhosts.get(entry["vhost"])
        if vhost is None:
            return
        counters = _KINDS[entry["kind"]](int(entry["since"]))
        counters.add_earlier([int(entry["row"].get(name, 0)) for name in counters.LOSS_FIELDS])
        if entry["history"]:
            counters.restore_history(entry["history"], len(entry["row"]), now)
        if entry["qid"] is not None:
            by_qid[entry["qid"]] = EventPosition(*entry["at"]), counters
        self._place(vhost, entry, counters)

    def _place(self, vhost: VirtualHost, entry: _Entry, counters: QueueCounters | ExchangeCounters) -> None:
        """Assign restored counters to their object, or to the deleted objects."""
        if isinstance(counters, QueueCounters):
            queue = vhost.queues.get(entry["name"])
            if queue is not None and queue.backing.qid != entry["qid"]:
                # Another queue of the same name has been declared since.
                queue = None
            self._assign(entry, counters, None if queue is None else queue.counters, vhost.deleted_queues)
        else:
            exchange = vhost.topology.exchanges.get(entry["name"])
            if exchange is not None and entry["qid"] is not None and _qid_of(exchange) != entry["qid"]:
                exchange = None
            self._assign(entry, counters, None if exchange is None else exchange.counters, vhost.deleted_exchanges)

    def _assign(
        self, entry: _Entry, counters: Counters, present: Counters | None, deleted: DeletedObjects[Counters]
    ) -> None:
        targets = {"present": present, "others": deleted.others, "earlier": deleted.earlier}
        target = targets.get(entry["state"])
        if target is None:
            deleted.restore(entry["name"], counters, entry["deleted_at"] or self._broker.timers.seconds())
        else:
            _merge_earlier(target, counters)

    def _add_events(self, start: EventPosition, by_qid: dict[int, tuple[EventPosition, LossCounters]]) -> None:
        """Add the losses in events after the file was written."""
        vhosts = self._broker.vhosts.values()
        exchanges: dict[int | None, LossCounters] = {
            _qid_of(exchange): exchange.counters
            for vhost in vhosts
            for exchange in vhost.topology.exchanges.values()
            if _qid_of(exchange) is not None
        }
        queues: dict[int | None, LossCounters] = {
            queue.backing.qid: queue.counters for vhost in vhosts for queue in vhost.queues.values()
        }
        queues |= exchanges
        of_exchanges = {qid for qid in exchanges if qid is not None} | {
            qid for qid, (_, counters) in by_qid.items() if isinstance(counters, ExchangeCounters)
        }
        positions = {at for at, _ in by_qid.values()} | {start}
        for position in positions:
            try:
                rows = rows_of_events(self._engine.events_since(position), of_exchanges)
            except UnreadableFileError as error:
                log.warning("%s; losses after the last count are left out", error)
                continue
            for qid, row in rows.items():
                at, counters = by_qid.get(qid, (start, None))
                found = queues.get(qid) or counters
                if at == position and found is not None:
                    found.add_earlier(row)
                    if counters is None:
                        found.since = self._broker.losses_since

    # --- while running ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to write the file every few seconds."""
        self._work.start()

    def close(self) -> None:
        """Write the file a last time. The engine must have written everything, and still be open."""
        self._work.stop()
        self._pool.shutdown(wait=True)
        self.save()

    def abandon(self) -> None:
        """Stop, as the death of the process does: what was not written is in the event log."""
        self._work.stop()
        self._pool.shutdown(wait=True)

    def save(self) -> None:
        """Write the file synchronously."""
        for _ in self._steps(at_once=True):
            pass

    def _pause(self) -> float:
        """Return the seconds until the file is written again: more if that takes long."""
        busy = self._writing.result() if self._writing is not None and self._writing.done() else 0.0
        return max(STEP, busy / _BUSY_SHARE)

    def _steps(self, at_once: bool) -> Iterator[None]:
        """Collect the losses, some objects per step, and write the file if they have changed."""
        if self._writing is not None and not self._writing.done() and not at_once:
            return
        begin = self._position = self._end_of_events()
        entries: list[_Entry] = []
        for visited, _ in enumerate(self._broker_objects(entries), 1):
            if visited % _STEP_OBJECTS == 0 and not at_once:
                yield
                # Events and counters of one step must be of the same moment.
                self._position = self._end_of_events()
            if self._position is None or begin is None:
                # Not all events could be written; try again later.
                return
        if begin is None:
            return
        rows = [tuple(entry["row"].values()) for entry in entries]
        if self._written is not None and self._written[0] == rows and not _has_grown(self._written[1], begin):
            return
        self._written = rows, begin
        fields = {"format": _FORMAT, "since": self._broker.losses_since, "events": begin, "objects": entries}
        if at_once:
            self._write(fields)
        else:
            self._writing = self._pool.submit(self._write, fields)

    def _end_of_events(self) -> EventPosition | None:
        """Write all events and return the end of the log; None if not all could be written."""
        self._write_events()
        return self._engine.events_end

    def _broker_objects(self, entries: list[_Entry]) -> Iterator[None]:
        """Add an entry for each object with losses; a step is one object."""
        for vhost in list(self._broker.vhosts.values()):
            for queue in list(vhost.queues.values()):
                if queue.counters.has_losses and not queue.deleted:
                    entry = _entry("queue", vhost.name, "present", queue.name, queue.counters, queue.retained_count)
                    entries.append(entry | {"qid": queue.backing.qid, "at": self._position})
                yield
            for exchange in list(vhost.topology.exchanges.values()):
                if exchange.counters.has_losses:
                    entry = _entry("exchange", vhost.name, "present", exchange.name, exchange.counters)
                    qid = _qid_of(exchange)
                    entries.append(entry if qid is None else entry | {"qid": qid, "at": self._position})
                yield
            yield from _deleted_objects("queue", vhost.name, vhost.deleted_queues, entries)
            yield from _deleted_objects("exchange", vhost.name, vhost.deleted_exchanges, entries)

    def _write(self, fields: dict[str, Any]) -> float:
        """Write the file; return the duration in seconds."""
        clock = self._broker.timers
        started = clock.monotonic()
        try:
            replace_file(self._files, str(self._data_dir), FILE, pack_checked(fields))
        except OSError as error:
            self._written = None
            log.warning("%s cannot be written: %s", self._data_dir / FILE, error.strerror or error)
        return (clock.monotonic() - started) / 1_000_000


def _qid_of(exchange: Exchange) -> int | None:
    """Return the number on disk of an exchange's delayed messages; None if it has none."""
    waiting = exchange.waiting if isinstance(exchange, DelayedExchange) else None
    return None if waiting is None else waiting.backing.qid


def _entry(kind: str, vhost: str, state: str, name: str | None, counters: LossCounters, retained: int = 0) -> _Entry:
    history = None if counters.losses is None else counters.losses.history
    return {
        "kind": kind,
        "vhost": vhost,
        "state": state,
        "name": name,
        "qid": None,
        "since": counters.since,
        "row": dict(zip(counters.LOSS_FIELDS, counters.loss_row(retained), strict=True)),
        "history": [] if history is None else history.dump(),
        "deleted_at": 0,
    }


def _deleted_objects(kind: str, vhost: str, deleted: DeletedObjects[Counters], entries: list[_Entry]) -> Iterator[None]:
    """Add an entry for each deleted object, and for the sums of those not kept by name."""
    for each in list(deleted.recent):
        entries.append(_entry(kind, vhost, "deleted", each.name, each.counters) | {"deleted_at": each.deleted_at})
        yield
    for state, counters in (("others", deleted.others), ("earlier", deleted.earlier)):
        if counters.has_losses:
            entries.append(_entry(kind, vhost, state, None, counters))


def _merge_earlier(target: LossCounters, source: LossCounters) -> None:
    """Add the losses of an earlier run to counters."""
    target.add_earlier(source.earlier)
    target.since = min(target.since, source.since)
    target.losses = source.losses


def _has_grown(before: EventPosition, now: EventPosition) -> bool:
    return now.file != before.file or now.offset - before.offset > _EVENT_BYTES


_losses_log: Final = logging.getLogger("leveret.losses")

#: Interval of the checks, in seconds.
_CHECK_SECONDS: Final = 10.0
#: Minimum number of seconds between two lines about an object.
_QUIET_SECONDS: Final = 600
#: Lines of one check; further objects are summed up in one line.
_LINES_MAX: Final = 20

#: How the fields of a row of losses are named in a line. Purged messages and those of deleted queues are removed on
#: purpose, and returned ones are known to their publisher. Delayed messages were promised to queues that remain.
_NAMES: Final = {
    "drop_maxlen": "over the limit",
    "drop_expired": "expired",
    "drop_rejected": "rejected",
    "drop_delivery_limit": "over the delivery limit",
    "refuse": "refused",
    "drop_unroutable": "unroutable",
    "drop_deleted": "waiting in it when it was deleted",
}


class _Seen:
    """What has been logged about an object.

    Attributes:
        row: Its losses when the last line about it was written, by LOSS_FIELDS.
        logged_at: When that was, in seconds since 1970; 0 before the first one.
        since: The check before the first new losses, in seconds since 1970; 0 if there are none.
    """

    __slots__ = ("logged_at", "row", "since")

    def __init__(self, row: Sequence[int]) -> None:
        self.row = row
        self.logged_at = 0
        self.since = 0


class LossLog:
    """Compares the losses of all queues and exchanges with those that it has logged.

    There is at most one line about each in ten minutes, which has all losses since the last one.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._work = PeriodicWork(
            broker.timers, lambda: _CHECK_SECONDS, self._check, "losses were compared with those in the log"
        )
        #: Only objects that have lost messages.
        self._seen: dict[LossCounters, _Seen] = {}
        self._last_check = broker.timers.seconds()

    def start(self) -> None:
        """Start to check. Losses before are not logged."""
        self._work.start()

    def stop(self) -> None:
        """Stop to check."""
        self._work.stop()

    def _check(self) -> Iterator[None]:
        """Log new losses; a step is one object."""
        now = self._broker.timers.seconds()
        known, self._seen = self._seen, {}
        lines = objects = messages = 0
        for vhost in list(self._broker.vhosts.values()):
            for kind, name, counters, retained in _objects(vhost):
                yield
                if not counters.has_losses:
                    continue
                row = counters.current_loss_row(retained)
                seen = self._seen[counters] = known.get(counters) or _Seen((0,) * len(row))
                lost, told = (row[at] - seen.row[at] for at in (0, counters.LOSS_FIELDS.index("refuse_told")))
                if lost <= 0 and told <= 0:
                    continue
                seen.since = seen.since or self._last_check
                if now - seen.logged_at < _QUIET_SECONDS:
                    continue
                if lines < _LINES_MAX:
                    lines += 1
                    _write_line(f"{kind} '{name}' in vhost '{vhost.name}'", lost, told, counters, row, seen)
                elif lost > 0:
                    objects, messages = objects + 1, messages + lost
                seen.row, seen.logged_at, seen.since = row, now, 0
        if objects:
            _losses_log.warning(
                "%d more queues and exchanges have lost %d messages; list_losses names them", objects, messages
            )
        self._last_check = now


def _objects(vhost: VirtualHost) -> Iterator[tuple[str, str, LossCounters, int]]:
    """Yield kind, name, counters and retained dead letters of what may have lost messages."""
    for queue in list(vhost.queues.values()):
        yield "queue", queue.name, queue.counters, queue.retained_count
    for queue_gone in list(vhost.deleted_queues.recent):
        yield "deleted queue", queue_gone.name, queue_gone.counters, 0
    for exchange in list(vhost.topology.exchanges.values()):
        yield "exchange", exchange.name, exchange.counters, 0
    for exchange_gone in list(vhost.deleted_exchanges.recent):
        yield "deleted exchange", exchange_gone.name, exchange_gone.counters, 0


def _write_line(subject: str, lost: int, told: int, counters: LossCounters, row: Sequence[int], seen: _Seen) -> None:
    since = datetime.fromtimestamp(seen.since).astimezone().isoformat(" ", "seconds")
    if lost <= 0:
        _losses_log.info("%s has refused %s since %s; whoever sent them was told", subject, _messages(told), since)
        return
    changes = {field: new - old for field, new, old in zip(counters.LOSS_FIELDS, row, seen.row, strict=True)}
    changes["refuse"] -= told
    reasons = [f"{changes[field]} {name}" for field, name in _NAMES.items() if changes.get(field)]
    arrived = sum(changes.get(field, 0) for field in _NAMES) - lost
    if arrived > 0:
        reasons.append(f"of these {arrived} arrived at the dead-letter exchange")
    if told > 0:
        reasons.append(f"not counting {told} refused with word to the publisher")
    _losses_log.warning("%s has lost %s since %s: %s", subject, _messages(lost), since, ", ".join(reasons))


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"

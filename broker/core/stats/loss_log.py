"""Writes lines about lost messages into the log: which queue, how many, for which reasons, and since when.

Losses are counted anyway, so nothing is done when a message is lost: the counters are compared every few seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from leveret.broker.core.broker import Broker
from leveret.broker.core.counters.history import LossCounters
from leveret.broker.core.scheduling.work import PeriodicWork
from leveret.broker.core.vhosts.vhost import VirtualHost

log = logging.getLogger("leveret.losses")

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
            log.warning("%d more queues and exchanges have lost %d messages; list_losses names them", objects, messages)
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
        log.info("%s has refused %s since %s; whoever sent them was told", subject, _messages(told), since)
        return
    changes = {field: new - old for field, new, old in zip(counters.LOSS_FIELDS, row, seen.row, strict=True)}
    changes["refuse"] -= told
    reasons = [f"{changes[field]} {name}" for field, name in _NAMES.items() if changes.get(field)]
    arrived = sum(changes.get(field, 0) for field in _NAMES) - lost
    if arrived > 0:
        reasons.append(f"of these {arrived} arrived at the dead-letter exchange")
    if told > 0:
        reasons.append(f"not counting {told} refused with word to the publisher")
    log.warning("%s has lost %s since %s: %s", subject, _messages(lost), since, ", ".join(reasons))


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"

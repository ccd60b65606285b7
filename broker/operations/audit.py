"""The audit log: takes events, writes them as records, and searches them.

Failed logins are counted, so that a flood of them is a few lines, and pushes nothing out of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Final

from leveret.broker.core.events import INTERNAL_USER, Actor, Event
from leveret.broker.core.json_values import table_to_json
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.storage.audit_log import LATE, AuditLog, audit_files, file_name
from leveret.storage.disk.files import Files
from leveret.storage.json_records import read_object, unpack_records

#: What comes and goes with clients, by the beginning of the kind.
_OF_CLIENTS: Final = ("connection.", "channel.", "consumer.", "user.authentication.success")
#: States that follow one another by themselves: nobody does anything.
_STATES: Final = "shovel.worker."
#: What a record has by another name, what says nothing to a reader, and what clients may fill with anything.
_LEFT_OUT: Final = frozenset(
    {"vhost", "message_count", "failures", "pid", "owner_pid", "client_properties", "peer_host", "node"}
)
#: Events whose object has its name in another field than `name`, by the beginning of their kind.
_NAMES: Final = {
    "binding.": "{source_name} -> {destination_name}",
    "permission.": "{user}",
    "topic.permission.": "{user}",
    "user.limits.": "{username}",
    "vhost.limits.": "{vhost}",
    "consumer.": "{consumer_tag}",
    "channel.closed": "{pid}",
    "alarm.": "{source}",
    "parameter.": "{component}/{name}",
    "user.authentication.": "{name}",
}
#: The kind of event that is counted.
FAILED_LOGIN: Final = "user.authentication.failure"
#: Seconds for which they are counted.
PERIOD: Final = 60.0
#: Pairs of user and address that are counted each by itself.
USERS_MAX: Final = 1000
#: Pairs and addresses that are counted each by itself.
ADDRESSES_MAX: Final = 2000
#: Length of user names that are counted by themselves, as they are kept.
_NAME_MAX: Final = 255


class Audit:
    """Writes events into the audit log, those of a turn at its end.

    Args:
        log: The files.
        turn: The broker's turns.
        timers: The broker's timers.
        has_clients: Whether what comes and goes with clients is logged, too.
    """

    def __init__(self, log: AuditLog, turn: Turn, timers: Timers, has_clients: bool) -> None:
        self.log = log
        self._turn = turn
        self._has_clients = has_clients
        self._failed_logins = FailedLogins(timers, self._add)

    def wants(self, kind: str) -> bool:
        """Check whether events of a kind are logged."""
        return not kind.startswith(_STATES) and (self._has_clients or not kind.startswith(_OF_CLIENTS))

    def take(self, event: Event) -> None:
        """Log an event."""
        if event.kind == FAILED_LOGIN and self._failed_logins.count(event):
            return
        if self._has_clients or not (event.kind[:5] in ("queue", "bindi") and event.fields.get("exclusive")):
            self._add(event)

    def close(self) -> None:
        """Log the failed logins that are only counted yet, and close the log.

        Raises:
            OSError: Its end cannot be written.
        """
        self._failed_logins.close()
        self.log.close()

    def _add(self, event: Event) -> None:
        self.log.add(record_of(event))
        self._turn.end_later()


def record_of(event: Event) -> dict[str, Any]:
    """Return the record of an event; see storage/audit_log.py."""
    about = event.fields
    record: dict[str, Any] = {"at": event.time * 1000, "kind": event.kind, "user": event.actor.user}
    if event.actor.host:
        record["host"] = event.actor.host
    if event.by_broker or event.actor.user == INTERNAL_USER:
        record["broker"] = True
    vhost = about.get("name") if event.kind.startswith("vhost.") and "vhost" not in about else about.get("vhost")
    if vhost is not None:
        record["vhost"] = vhost
    record["object"] = object_name(event.kind, about)
    count = about.get("message_count", about.get("failures"))
    if count is not None:
        record["count"] = count
    record["details"] = {
        name: table_to_json(value) if isinstance(value, tuple) else value
        for name, value in about.items()
        if name not in _LEFT_OUT and value not in (None, "", (), [])
    }
    return record


def object_name(kind: str, about: Mapping[str, Any]) -> str:
    """Return the name of what an event is about."""
    for beginning, form in _NAMES.items():
        if kind.startswith(beginning):
            return form.format_map(about)
    return str(about.get("name", ""))


@dataclass(frozen=True, slots=True)
class Search:
    """Which records are wanted. Texts may have `*` for any characters; None is for all.

    Args:
        user: Name of the user.
        host: Address of the client.
        kind: What was done.
        vhost: Virtual host.
        object: Name of the object.
        since: First time, in microseconds since 1970.
        until: Last time.
    """

    user: str | None = None
    host: str | None = None
    kind: str | None = None
    vhost: str | None = None
    object: str | None = None
    since: int = 0
    until: int = 2**63 - 1

    def finds(self, record: Mapping[str, Any]) -> bool:
        """Check whether a record is wanted."""
        if not self.since <= record["at"] <= self.until:
            return False
        return all(
            fnmatchcase(str(record.get(name, "")), pattern.replace("[", "[[]"))
            for name in _TEXTS
            if (pattern := getattr(self, name)) is not None
        )


_TEXTS: Final = tuple(each.name for each in fields(Search) if each.name not in ("since", "until"))


def newest(files: Files, directory: str, salt: int, search: Search) -> Iterator[dict[str, Any]]:
    """Yield the records that are wanted, the newest first. Reads files that another thread writes.

    Raises:
        OSError: A file cannot be read.
    """
    times = audit_files(files, directory)
    for time, end in reversed([*zip(times, [*times[1:], 2**63 - 1], strict=True)]):
        if end < search.since or time - LATE > search.until:
            continue
        octets = files.read_all(f"{directory}/{file_name(time)}") or b""
        needle = _needle(search)
        for found in reversed([*unpack_records(octets, salt)]):
            if needle in found:
                record = read_object(found)
                if search.finds(record):
                    yield record


def _needle(search: Search) -> bytes:
    """Return what the JSON of each record has that is wanted: decoding the others takes long."""
    texts = [(name, getattr(search, name)) for name in ("user", "kind", "object")]
    plain = [(name, text) for name, text in texts if text is not None and "*" not in text and "?" not in text]
    return f'"{plain[0][0]}":{json.dumps(plain[0][1])}'.encode() if plain else b""


# -- failed logins ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Count:
    """The failed logins that are not in the log yet."""

    failures: int = 0
    first: int = 0
    last: int = 0
    #: Fields of the last one.
    fields: dict[str, Any] | None = None


class FailedLogins:
    """Counts failed logins of the same user from the same address.

    The first one is logged at once. Those that follow within a minute are one event at its end, which has their number,
    and the time of the first and the last one. Of very many users only the addresses are counted, of very many
    addresses only all together, so that neither memory nor log grow with what somebody tries.

    Args:
        timers: The broker's timers.
        log: Takes the events of counted logins: `failures` is their number, `first` and `last` are milliseconds
            since 1970; the other fields are those of the last one. User or address are empty if several were counted.
    """

    def __init__(self, timers: Timers, log: Callable[[Event], None]) -> None:
        self._timers = timers
        self._log = log
        self._counts: dict[Actor, _Count] = {}

    def count(self, event: Event) -> bool:
        """Return whether a failed login is counted; the first of a minute is to be logged."""
        who = self._counted_as(event.actor)
        known = self._counts.get(who)
        if known is None:
            if not self._counts:
                self._timers.call_later(PERIOD, self._end)
            self._counts[who] = _Count()
            return False
        known.failures += 1
        known.first = known.first or event.time
        known.last = event.time
        known.fields = dict(event.fields) if who == event.actor else {"name": who.user}
        return True

    def close(self) -> None:
        """Log what is counted."""
        for who, known in self._counts.items():
            if known.failures:
                about = dict(known.fields or {})
                if known.failures > 1:
                    about |= {"failures": known.failures, "first": known.first, "last": known.last}
                self._log(Event(FAILED_LOGIN, known.last, who, False, about))

    def _counted_as(self, actor: Actor) -> Actor:
        """Return who stands for the user and address of a failed login."""
        if len(actor.user) <= _NAME_MAX and (actor in self._counts or len(self._counts) < USERS_MAX):
            return actor
        address = Actor("", actor.host)
        return address if address in self._counts or len(self._counts) < ADDRESSES_MAX else Actor("")

    def _end(self) -> None:
        """Log what was counted; where it goes on, counting does."""
        self.close()
        self._counts = {who: _Count() for who, known in self._counts.items() if known.failures}
        if self._counts:
            self._timers.call_later(PERIOD, self._end)

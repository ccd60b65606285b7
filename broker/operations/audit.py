"""The audit log: takes events, writes them as records, and searches them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Final

from leveret.broker.core.events import INTERNAL_USER, Event
from leveret.broker.core.json_values import table_to_json
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.operations.failed_logins import FAILED_LOGIN, FailedLogins
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

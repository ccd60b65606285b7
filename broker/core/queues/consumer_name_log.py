"""What a stream knows of its named consumers, on disk: so a restart does not forget it.

Each change is a record in a store of the stream; the last record of a name is valid. Records are written at the end of
the turn, as acknowledgements of queues are, and synced with what is written next, within about a second.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from leveret.broker.core.message_stores.value_backing import ValueBacking
from leveret.protocol.properties import encode_content_header
from leveret.storage.event_format import EventKind
from leveret.storage.message import Envelope, Message, StoredMessage
from leveret.storage.stores.numbered_store import scan_all

#: What all records have in common.
_ENVELOPE: Final = Envelope(b"\x00\x00", encode_content_header(0), persistent=True)
#: Number of the next message, 0 for a name that was deleted; missed messages. The name follows.
_RECORD: Final = struct.Struct("<QQ")
#: Records that are read together at a start, and the largest number removed at once.
_READ: Final = 4096
_REMOVE: Final = 1024
#: Records beyond one for each name, after which the oldest ones are removed.
_SURPLUS: Final = 4096
_ALL_BYTES: Final = 1 << 62


class NameRecord(NamedTuple):
    """What is known of a name.

    Attributes:
        name: The name.
        next: Number of the next message; 0 if the name was deleted.
        missed: Number of messages that were removed before it had read them.
        changed: When it was written, in microseconds since 1970; 0 if it has not been yet.
    """

    name: str
    next: int
    missed: int
    changed: int = 0


class ConsumerNameLog:
    """Appends records to a store, and removes the oldest ones when most are not needed any more.

    Args:
        open_store: Opens the store; its argument says whether it is made if it does not exist.
    """

    __slots__ = ("_backing", "_open_store")

    def __init__(self, open_store: Callable[[bool], ValueBacking | None]) -> None:
        self._open_store = open_store
        self._backing = open_store(False)

    def load(self) -> Iterator[NameRecord]:
        """Iterate over all records, in the order in which they were written.

        Raises:
            UnreadableFileError: The system cannot read them.
        """
        if self._backing is None:
            return
        for entries in scan_all(self._backing.store, _READ):
            for _, record, _ in entries:
                if len(record.body) > _RECORD.size:
                    arrived = record.arrived_at if isinstance(record, StoredMessage) else 0
                    next_number, missed = _RECORD.unpack_from(record.body)
                    yield NameRecord(_name_in(record), next_number, missed, arrived)

    def open(self) -> None:
        """Make the store if it does not exist.

        Raises:
            ConnectionFault: RESOURCE_ERROR (506): its files cannot be created.
        """
        if self._backing is None:
            self._backing = self._open_store(True)

    def write(self, changed: Sequence[NameRecord], known: Callable[[str], NameRecord | None], count: int) -> None:
        """Append records; they are on disk at the end of the turn.

        Args:
            changed: The records.
            known: Returns what is to be in the log of a name; None if it is unknown.
            count: Number of names.
        """
        if self._backing is None:
            return
        store = self._backing.store
        self._append(changed)
        if store.ready_count > count + _SURPLUS:
            entries = store.take(_REMOVE, _ALL_BYTES)[0]
            written = {record.name for record in changed}
            names = {_name_in(record) for _, record, _ in entries} - written
            again = [record for record in map(known, sorted(names)) if record is not None]
            self._append(again)
            store.settle(entries, EventKind.FORGOTTEN)

    def _append(self, records: Sequence[NameRecord]) -> None:
        assert self._backing is not None
        for record in records:
            body = _RECORD.pack(record.next, record.missed) + record.name.encode()
            self._backing.store.append([Message(_ENVELOPE, body)], len(body))

    def delete(self) -> None:
        """Delete the store."""
        backing, self._backing = self._backing, None
        if backing is not None:
            backing.delete()


def _name_in(record: Message) -> str:
    return record.body[_RECORD.size :].decode("utf-8", "replace")

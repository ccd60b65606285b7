"""Maps queue numbers, which files use, to queue names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from leveret.storage.directory.data_directory import QUEUE_FILE
from leveret.storage.directory.deleted_queues import name_of, read_deleted
from leveret.storage.disk.files import Files

_SURROGATES: Final = re.compile(r"[\ud800-\udfff]")


class QueueName(NamedTuple):
    """Name and metadata of a queue, from its directory.

    Attributes:
        vhost: Virtual host, with U+FFFD for what is not UTF-8: tables cannot contain it.
        name: Queue name, likewise.
        durable: Whether the queue is durable.
        salt: Salt of the checksums of its records; None if QUEUE.json is damaged.
        kind: ``queue``, or ``exchange`` for the delayed messages of an exchange.
        is_stream: Whether it is a stream.
    """

    vhost: str
    name: str
    durable: bool
    salt: int | None
    kind: str = "queue"
    is_stream: bool = False

    @property
    def has_messages(self) -> bool:
        """Whether its records are messages, and not remembered values or places of consumers in a stream."""
        return self.kind in ("queue", "exchange")


def read_queue_names(
    files: Files, path: str, known: Mapping[int, QueueName] = MappingProxyType({})
) -> dict[int, QueueName]:
    """Return the queues of a data directory by number. If QUEUE.json is damaged, the name is the number.

    Args:
        known: An earlier result. A number is never given to another queue, so files are not read again that were whole.
    """
    found: dict[int, QueueName] = {}
    for directory in files.list_directory(f"{path}/q"):
        try:
            qid = int(directory, 16)
        except ValueError:
            continue
        before = known.get(qid)
        if directory != f"{qid:08x}":
            continue
        if before is not None and before.salt is not None:
            found[qid] = before
            continue
        octets = files.read_all(f"{path}/q/{directory}/{QUEUE_FILE}")
        if octets is not None:
            found[qid] = _queue_name(octets) or QueueName("", f"#{qid}", True, None)
    return found


def read_deleted_names(files: Files, path: str) -> dict[int, QueueName]:
    """Return deleted queues by number, as far as events of them may remain."""
    return {
        each.qid: QueueName(valid_name(each.vhost), valid_name(each.name), each.durable, None, each.kind)
        for each in read_deleted(files, f"{path}/events")
    }


def valid_name(name: str) -> str:
    """Return a name with U+FFFD for bytes that are not UTF-8, which are surrogate escapes in files."""
    return _SURROGATES.sub("\ufffd", name)


def _queue_name(octets: bytes) -> QueueName | None:
    try:
        fields = json.loads(octets)
        attributes = fields["attributes"]
        salt = int(fields["salt"])
        kind, name = name_of(attributes, int(fields["qid"]))
        durable, is_stream = fields.get("durable") is not False, "stream_segment_bytes" in attributes
        vhost = valid_name(str(attributes.get("vhost", "/")))
        return QueueName(vhost, valid_name(name), durable, salt, kind, is_stream)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None

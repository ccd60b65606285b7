"""Which queue is which: the numbers that files go by, and the names that people know."""

from __future__ import annotations

import json
from typing import NamedTuple

from leveret.storage.directory.data_directory import QUEUE_FILE
from leveret.storage.directory.deleted_queues import read_deleted
from leveret.storage.disk.files import Files


class QueueName(NamedTuple):
    """What a queue's directory says of it.

    Attributes:
        vhost: Its virtual host.
        name: Its name.
        durable: Whether it outlives the broker.
        salt: Goes into the checksums of its records; None if QUEUE.json is damaged.
    """

    vhost: str
    name: str
    durable: bool
    salt: int | None


def read_queue_names(files: Files, path: str) -> dict[int, QueueName]:
    """The queues of a data directory by number; one whose QUEUE.json is damaged is called by its number.

    Args:
        files: How to read.
        path: The data directory.
    """
    found: dict[int, QueueName] = {}
    for directory in files.list_directory(f"{path}/q"):
        try:
            qid = int(directory, 16)
        except ValueError:
            continue
        if directory == f"{qid:08x}":
            octets = files.read_all(f"{path}/q/{directory}/{QUEUE_FILE}")
            if octets is not None:
                found[qid] = _queue_name(octets) or QueueName("", f"#{qid}", True, None)
    return found


def read_deleted_names(files: Files, path: str) -> dict[int, QueueName]:
    """The queues by number that have been deleted and of which there may be events still.

    Args:
        files: How to read.
        path: The data directory.
    """
    return {
        each["qid"]: QueueName(each["vhost"], each["name"], each.get("durable") is not False, None)
        for each in read_deleted(files, f"{path}/events")
    }


def _queue_name(octets: bytes) -> QueueName | None:
    try:
        fields = json.loads(octets)
        attributes = fields["attributes"]
        salt = int(fields["salt"])
        name = str(attributes.get("name", f"#{fields['qid']}"))
        return QueueName(str(attributes.get("vhost", "/")), name, fields.get("durable") is not False, salt)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None

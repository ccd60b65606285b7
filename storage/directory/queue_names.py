"""Maps queue numbers, which files use, to queue names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from leveret.storage.disk.files import Files, replace_file, write_file

DELETED_FILE: Final = "deleted-queues.jsonl"
#: Name of the file that says what a queue is, in its directory.
QUEUE_FILE: Final = "QUEUE.json"


def queue_path(path: str, qid: int) -> str:
    """Return the path of a queue's directory in a data directory."""
    return f"{path}/q/{qid:08x}"


def store_path(path: str, qid: int, priority: int) -> str:
    """Return the path of the directory of one priority of a queue in a data directory."""
    directory = queue_path(path, qid)
    return f"{directory}/p{priority:03d}" if priority else directory


def priorities_in(names: Iterable[str]) -> list[int]:
    """Return the priorities of a queue that has these names in its directory."""
    return [0] + [int(name[1:]) for name in names if len(name) == 4 and name[0] == "p" and name[1:].isdigit()]


class DeletedQueue(NamedTuple):
    """A line of the file.

    Attributes:
        qid: Number of the queue.
        vhost: Name of its virtual host.
        name: Its name.
        durable: Whether it was durable.
        deleted: Time of the deletion in microseconds since 1970.
        kind: ``queue``, or ``exchange`` for the delayed messages of an exchange.
    """

    qid: int
    vhost: str
    name: str
    durable: bool
    deleted: int
    kind: str = "queue"


def name_of(attributes: Mapping[str, object], qid: int) -> tuple[str, str]:
    """Return kind and name of what has messages on disk.

    Args:
        attributes: Attributes from its QUEUE.json.
        qid: Its number, which is its name if it has none.
    """
    if "exchange" in attributes:
        return "exchange", str(attributes["exchange"])
    for kind in ("deduplication", "offsets"):
        if kind in attributes:
            return kind, str(attributes[kind])
    return "queue", str(attributes.get("name", f"#{qid}"))


def note_deleted(
    files: Files, directory: str, qid: int, durable: bool, attributes: Mapping[str, object], now: int
) -> None:
    """Append the name of a deleted queue.

    Args:
        directory: Path of the event log.
        qid: Number of the queue.
        durable: Whether the queue was durable.
        attributes: Attributes from its QUEUE.json.
        now: Microseconds since 1970.
    Raises:
        OSError: Nothing was written.
    """
    kind, name = name_of(attributes, qid)
    fields = {
        "qid": qid,
        "vhost": str(attributes.get("vhost", "/")),
        "name": name,
        "durable": durable,
        "deleted": now,
        **({} if kind == "queue" else {"kind": kind}),
    }
    path = f"{directory}/{DELETED_FILE}"
    handle = files.open(path, create=True)
    try:
        # Begins with a line break, because the last line may be incomplete.
        write_file(files, handle, b"\n" + json.dumps(fields).encode() + b"\n", files.size(path))
    finally:
        files.close(handle)


def read_deleted(files: Files, directory: str) -> list[DeletedQueue]:
    """Return the readable lines in order of deletion."""
    lines = (files.read_all(f"{directory}/{DELETED_FILE}") or b"").splitlines()
    return [queue for line in lines if (queue := _parse(line)) is not None]


def forget_deleted(files: Files, directory: str, before: int) -> None:
    """Remove the queues deleted before a time, of which no events are left.

    Args:
        directory: Path of the event log.
        before: Microseconds since 1970.
    Raises:
        OSError: The file is unchanged.
    """
    lines = (files.read_all(f"{directory}/{DELETED_FILE}") or b"").splitlines()
    # There may be millions of lines: they are parsed one by one and kept as bytes.
    kept = [line for line in lines if (queue := _parse(line)) is not None and queue.deleted >= before]
    if len(kept) < len(lines):
        replace_file(files, directory, DELETED_FILE, b"".join([line + b"\n" for line in kept]))


def _parse(line: bytes) -> DeletedQueue | None:
    """Parse a line; return None if it cannot be read."""
    try:
        fields = json.loads(line)
        durable = fields.get("durable") is not False
        names = str(fields["vhost"]), str(fields["name"])
        return DeletedQueue(
            int(fields["qid"]), *names, durable, int(fields["deleted"]), str(fields.get("kind", "queue"))
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


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

"""Names of deleted queues, kept as long as the event log has events of them.

Each line of `events/deleted-queues.jsonl` is a JSON object: qid, vhost, name, durable, the time of deletion in
microseconds since 1970, and the kind if it is an exchange with delayed messages. Only readers use the file. It is not
synced, and lines that cannot be written or read are skipped: readers then show the queue's number instead of its name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from leveret.storage.disk.files import Files, replace_file, write_file

NAME: Final = "deleted-queues.jsonl"


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
    path = f"{directory}/{NAME}"
    handle = files.open(path, create=True)
    try:
        # Begins with a line break, because the last line may be incomplete.
        write_file(files, handle, b"\n" + json.dumps(fields).encode() + b"\n", files.size(path))
    finally:
        files.close(handle)


def read_deleted(files: Files, directory: str) -> list[DeletedQueue]:
    """Return the readable lines in order of deletion."""
    lines = (files.read_all(f"{directory}/{NAME}") or b"").splitlines()
    return [queue for line in lines if (queue := _parse(line)) is not None]


def forget_deleted(files: Files, directory: str, before: int) -> None:
    """Remove the queues deleted before a time, of which no events are left.

    Args:
        directory: Path of the event log.
        before: Microseconds since 1970.
    Raises:
        OSError: The file is unchanged.
    """
    lines = (files.read_all(f"{directory}/{NAME}") or b"").splitlines()
    # There may be millions of lines: they are parsed one by one and kept as bytes.
    kept = [line for line in lines if (queue := _parse(line)) is not None and queue.deleted >= before]
    if len(kept) < len(lines):
        replace_file(files, directory, NAME, b"".join([line + b"\n" for line in kept]))


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

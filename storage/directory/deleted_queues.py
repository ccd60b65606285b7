"""What deleted queues were called, for as long as the event log has events of them.

`events/deleted-queues.jsonl` has a JSON object a line: qid, vhost, name, durable, and when the queue was deleted, in
microseconds since 1970. It serves readers alone. It is not synced, and a line that cannot be written or read is passed
over: a queue without a name is a nuisance, no more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from leveret.storage.disk.files import Files, replace_file, write_file

NAME: Final = "deleted-queues.jsonl"


def note_deleted(
    files: Files, directory: str, qid: int, durable: bool, attributes: Mapping[str, Any], now: int
) -> None:
    """Note what a queue was called.

    Args:
        files: The seam to the operating system.
        directory: Path of the event log.
        qid: Number of the queue.
        durable: Whether it outlived the process.
        attributes: As in its QUEUE.json.
        now: Microseconds since 1970.
    Raises:
        OSError: Nothing was written.
    """
    fields = {
        "qid": qid,
        "vhost": str(attributes.get("vhost", "/")),
        "name": str(attributes.get("name", f"#{qid}")),
        "durable": durable,
        "deleted": now,
    }
    path = f"{directory}/{NAME}"
    handle = files.open(path, create=True)
    try:
        # It begins with the end of a line, since the last one may be half written.
        write_file(files, handle, b"\n" + json.dumps(fields).encode() + b"\n", files.size(path))
    finally:
        files.close(handle)


def read_deleted(files: Files, directory: str) -> list[dict[str, Any]]:
    """The lines that can be read, in the order in which the queues were deleted."""
    lines = (files.read_all(f"{directory}/{NAME}") or b"").splitlines()
    return [fields for line in lines if (fields := _fields_of(line)) is not None]


def forget_deleted(files: Files, directory: str, before: int) -> None:
    """Forget the queues that were deleted before a time, of which no events are left.

    Args:
        files: The seam to the operating system.
        directory: Path of the event log.
        before: Microseconds since 1970.
    Raises:
        OSError: All are there still.
    """
    lines = (files.read_all(f"{directory}/{NAME}") or b"").splitlines()
    # There may be millions: they stay as they are, and are looked at one by one.
    kept = [line for line in lines if (fields := _fields_of(line)) is not None and fields["deleted"] >= before]
    if len(kept) < len(lines):
        replace_file(files, directory, NAME, b"".join([line + b"\n" for line in kept]))


def _fields_of(line: bytes) -> dict[str, Any] | None:
    """What a line says; None if it cannot be read."""
    try:
        fields: dict[str, Any] = json.loads(line)
        fields["qid"], fields["deleted"] = int(fields["qid"]), int(fields["deleted"])
        fields["vhost"], fields["name"] = str(fields["vhost"]), str(fields["name"])
    except (ValueError, KeyError, TypeError):
        return None
    return fields

"""Saves and loads the list of segments that a snapshot keeps for one batch of a stream."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from leveret.analytics.partitions import SegmentPart, SnapshotLocation
from leveret.analytics.rows.message_batches import Label
from leveret.analytics.rows.record_rows import RowLimits
from leveret.storage.snapshots.lease import LEASE_FILE, LINKS
from leveret.storage.snapshots.segments import SegmentView

_PARTS_FILE: Final = "PARTS"


def save_parts(directory: str, cut: int, parts: Sequence[SegmentPart]) -> None:
    """Save the segments of a batch in the snapshot's directory, and remove the links to all others.

    Args:
        directory: Directory of the snapshot.
        cut: Time at which the snapshot ends, in microseconds since 1970.
        parts: The segments of the batch.
    """
    kept = {part.view.path for part in parts}
    fields = {"cut": cut, "parts": [_to_json(part) for part in parts]}
    draft = f"{directory}/{_PARTS_FILE}.tmp"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(fields, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, f"{directory}/{_PARTS_FILE}")
    for name in os.listdir(directory):
        path = f"{directory}/{name}"
        if name.startswith(LINKS) and path not in kept:
            os.unlink(path)


def load_parts(directory: str, location: str, store_id: bytes) -> tuple[SnapshotLocation, list[SegmentPart]] | None:
    """Load the segments of a batch; return None if the snapshot is gone.

    Args:
        directory: Directory of the snapshot.
        location: Path of the data directory.
        store_id: Id of the data directory.
    """
    try:
        with open(f"{directory}/{_PARTS_FILE}", encoding="utf-8") as file:
            fields = json.load(file)
    except OSError:
        return None
    return SnapshotLocation(location, directory, fields["cut"], store_id, directory), [
        _from_json(each) for each in fields["parts"]
    ]


def set_lease_timeout(directory: str, timeout: float) -> None:
    """Set how many seconds a snapshot is kept without a heartbeat."""
    path = f"{directory}/{LEASE_FILE}"
    with open(path, encoding="utf-8") as file:
        fields = json.load(file)
    if fields.get("timeout") != timeout:
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            json.dump(fields | {"timeout": timeout}, file)
        os.replace(f"{path}.tmp", path)


def _to_json(part: SegmentPart) -> dict[str, Any]:
    view = asdict(replace(part.view, live=array("Q"))) | {"live": list(part.view.live)}
    return {
        "view": view,
        "label": list(part.label),
        "delivered": list(part.delivered),
        "limits": list(part.limits),
    }


def _from_json(fields: dict[str, Any]) -> SegmentPart:
    view = SegmentView(**(fields["view"] | {"live": array("Q", fields["view"]["live"])}))
    label, limits = Label(*fields["label"]), RowLimits(*fields["limits"])
    return SegmentPart(view, label, array("Q", fields["delivered"]), limits)

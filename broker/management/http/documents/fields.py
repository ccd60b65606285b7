"""Fields that documents of several kinds share: figures of Erlang processes, and times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

#: Figures of Erlang processes, which tools of RabbitMQ expect.
GARBAGE_COLLECTION: Final[Mapping[str, int]] = {
    "fullsweep_after": 0,
    "max_heap_size": 0,
    "min_bin_vheap_size": 0,
    "min_heap_size": 0,
    "minor_gcs": 0,
}
PROCESS: Final[Mapping[str, Any]] = {
    "garbage_collection": GARBAGE_COLLECTION,
    "reductions": 0,
    "reductions_details": {"rate": 0.0},
}


def iso_time(seconds: int) -> str:
    """Format a time in seconds since 1970, for example ``2026-11-21T02:30:16.000+00:00``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")

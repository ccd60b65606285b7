"""Constant fields that tools of RabbitMQ expect but that have no meaning in Leveret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Retention of histories in seconds.
RETENTION: Final[Mapping[str, list[int]]] = {
    "global": [600, 3600, 28800, 86400],
    "basic": [600, 3600],
    "detailed": [600],
}
#: Figures of Erlang processes.
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
#: Rates are per object, not per pair of objects (for example channel and queue).
RATES_MODE: Final = "basic"

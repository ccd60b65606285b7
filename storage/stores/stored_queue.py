"""A queue of the storage engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leveret.storage.stores.segment_store import SegmentStore


@dataclass(slots=True)
class StoredQueue:
    """A queue of the storage engine.

    Attributes:
        qid: Number of the queue.
        durable: Whether it survives a restart.
        attributes: Metadata of the broker.
        stores: Stores by priority.
    """

    qid: int
    durable: bool
    attributes: Mapping[str, Any]
    stores: dict[int, SegmentStore] = field(default_factory=dict)

    @property
    def persists_transient(self) -> bool:
        """Whether transient messages survive a restart too; stored as an attribute."""
        return bool(self.attributes.get("persists_transient"))

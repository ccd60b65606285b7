"""A queue's part of a storage engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leveret.storage.stores.segment_store import SegmentStore


@dataclass(slots=True)
class StoredQueue:
    """A queue as the storage engine knows it.

    Attributes:
        qid: Its number.
        durable: Whether it outlives the process.
        attributes: What the broker wants to find again.
        stores: By priority.
    """

    qid: int
    durable: bool
    attributes: Mapping[str, Any]
    stores: dict[int, SegmentStore] = field(default_factory=dict)

    @property
    def persists_transient(self) -> bool:
        """Whether transient messages outlive the process too; one of the attributes, as it is kept with them."""
        return bool(self.attributes.get("persists_transient"))

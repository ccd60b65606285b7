"""Counts open connections and channels by user."""

from __future__ import annotations

from collections import Counter


def count_down(counts: Counter[str], name: str) -> None:
    """Decrement the count of a user; counts of 0 are removed."""
    counts[name] -= 1
    if not counts[name]:
        del counts[name]

"""How many connections and channels each user has open."""

from __future__ import annotations

from collections import Counter


def count_down(counts: Counter[str], name: str) -> None:
    """Count one less of a user; who has none is forgotten, as the names of users come and go."""
    counts[name] -= 1
    if not counts[name]:
        del counts[name]

"""Format of times in the HTTP API."""

from __future__ import annotations

from datetime import UTC, datetime


def iso_time(seconds: int) -> str:
    """Format a time in seconds since 1970, for example ``2026-11-21T02:30:16.000+00:00``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")

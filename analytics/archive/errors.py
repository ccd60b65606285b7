"""Errors of archives."""

from __future__ import annotations

from leveret.analytics.errors import AnalyticsError


class ArchiveError(AnalyticsError):
    """An archive cannot be read or written now; the text says what and why."""


class ArchiveRefusedError(ArchiveError):
    """What was asked for does not fit the archive, so that trying it again changes nothing."""

"""Errors of the data source and the jobs."""

from __future__ import annotations


class AnalyticsError(Exception):
    """A query or job cannot run; the text has the reason and a remedy."""


class DamagedRecordError(Exception):
    """Data is damaged, and the query is to fail then."""


class OptionError(AnalyticsError):
    """An option is unknown, invalid or not applicable."""

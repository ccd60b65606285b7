"""What can be wrong with how the tables are asked for."""

from __future__ import annotations


class AnalyticsError(Exception):
    """Nothing can be read; the text says why and what to do."""


class OptionError(AnalyticsError):
    """An option has no meaning."""

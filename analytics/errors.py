"""Errors of queries, jobs and archives, and what becomes of a query when data is gone that it has not read."""

from __future__ import annotations

import logging
from typing import Final


class AnalyticsError(Exception):
    """A query or job cannot run; the text has the reason and a remedy."""


class DamagedRecordError(Exception):
    """Data is damaged, and the query is to fail then."""


class OptionError(AnalyticsError):
    """An option is unknown, invalid or not applicable."""


class ArchiveError(AnalyticsError):
    """An archive cannot be read or written now; the text says what and why."""


class ArchiveRefusedError(ArchiveError):
    """What was asked for does not fit the archive, so that trying it again changes nothing."""


def missing_iceberg(error: ImportError) -> AnalyticsError:
    """Return the error that says how to install what tables of Iceberg need."""
    return AnalyticsError(f"the Python package {error.name} is missing; pip install 'leveret[iceberg]'")


_LOG: Final = logging.getLogger(__name__)


def report_data_loss(gone: str, fails: bool, goes_on: str = "go on with what is there", advice: str = "") -> None:
    """Report data that a query has not read and cannot read any more: as an error, or in the log.

    Args:
        goes_on: What a query does without it.
        advice: A sentence on how to prevent it, without a full stop; empty for none.
    Raises:
        AnalyticsError: `fails` is set.
    """
    if fails:
        remedy = f"Set the option failOnDataLoss=false to {goes_on}, or start the query with a new checkpoint directory"
        raise AnalyticsError(". ".join(filter(None, (gone, remedy, advice))))
    _LOG.warning("%s; the query goes on, as failOnDataLoss is false", gone)

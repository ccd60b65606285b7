"""Finds the format of a query's bodies."""

from __future__ import annotations

from leveret.analytics.archive.sources import Sources
from leveret.analytics.bodies.body_format import BodyFormat, json_format, schema_format
from leveret.analytics.bodies.value_types import type_ddl
from leveret.analytics.options import Options


def format_of(options: Options, session: str = "", sources: Sources | None = None) -> BodyFormat | None:
    """Return the format of a query's bodies; None if it does not read any.

    Args:
        options: Options of the data source.
        session: Directory of the session; empty for none.
        sources: The archive that is read, and data directories with it; None for a data directory alone.
    Raises:
        OptionError: The schema cannot be read, or is not one.
        AnalyticsError: This Python lacks the library for the format.
        AnalyticsError, DataDirectoryError, SnapshotError, DamagedRecordError: As plan_table() does.
        ArchiveError: The archive cannot be read.
    """
    bodies = options.bodies
    if bodies is None:
        return None
    if bodies.form != "json":
        return schema_format(bodies)
    if bodies.schema:
        return json_format(bodies.schema)
    # Imported late, as what parses JSON takes long to load.
    from leveret.analytics.bodies.sampling import inferred_type

    return BodyFormat("json", type_ddl(inferred_type(options, bodies.sample, session, sources)))

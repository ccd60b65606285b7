"""The option `--fail-if`: a job fails if rows of its result fulfil a condition, for cron and CI."""

from __future__ import annotations

from typing import Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from leveret.analytics.errors import AnalyticsError
from leveret.analytics.results.result_output import as_table, rows_of

#: Rows that are shown.
_SHOWN: Final = 20


class ConditionError(AnalyticsError):
    """A condition cannot be evaluated; the text has the reason."""


def rows_that_fulfil(frame: DataFrame, condition: str) -> DataFrame:
    """Return the rows of a result that fulfil a condition, without computing them.

    Args:
        frame: The result.
        condition: A condition in SQL over its columns.
    Raises:
        ConditionError: It is not a condition over these columns.
    """
    try:
        return frame.where(condition)
    except (AnalysisException, ParseException) as error:
        reason = next(line for line in str(error).splitlines() if line)
        columns = ", ".join(frame.columns)
        raise ConditionError(f"--fail-if '{condition}': {reason} The columns are {columns}.") from error


def failure_text(found: DataFrame, condition: str) -> str:
    """Compute rows that fulfil a condition, and say which they are.

    Args:
        found: The rows.
        condition: The condition.
    Returns:
        How many there are, and a table of the first ones; "" if there are none.
    """
    count = found.count()
    if not count:
        return ""
    rows = f"{count} row{'' if count == 1 else 's'}"
    more = f"and {count - _SHOWN} more\n" if count > _SHOWN else ""
    return f"{rows} with {condition}\n{as_table(found.columns, rows_of(found.limit(_SHOWN)))}{more}"

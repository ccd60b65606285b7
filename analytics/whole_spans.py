"""Whole minutes, hours and days of times in Spark, by integers: a quotient of floats may be rounded up."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f


def span_start(microseconds: Column, length: int) -> Column:
    """Return the start of the span of time in which a time is; both in microseconds since 1970.

    Args:
        microseconds: The time, which may be before 1970.
        length: Length of the spans in microseconds; one begins in 1970.
    """
    return microseconds - f.pmod(microseconds, f.lit(length))


def whole_spans(microseconds: Column, length: int) -> Column:
    """Return how many whole spans of time lie between 1970 and a time; negative before 1970.

    Args:
        microseconds: The time, in microseconds since 1970.
        length: Length of the spans in microseconds.
    """
    return f.call_function("div", span_start(microseconds, length), f.lit(length))

"""The option `--filter`, whose grammar is that of the API."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.faults import bad_argument
from leveret.policies.message_filter import CONDITIONS, FilterError, json_or_text, parse_conditions, read_filter

#: Explanation of the option.
FILTER_HELP: Final = (
    "--filter <condition>",
    f"{', '.join(CONDITIONS)}, or a JSON object of conditions; messages must match all filters, or with match=any one",
)


def read_conditions(text: str) -> dict[str, Any]:
    """Parse conditions into the `filter` object of the API.

    Args:
        text: One condition per line.

    Raises:
        UsageFault: A condition has another form or an unknown key or value.
    """
    try:
        conditions = parse_conditions(text)
        read_filter(conditions)
    except FilterError as error:
        raise bad_argument(f"--{error}") from None
    return conditions


def read_value(text: str) -> Any:
    """Return the value of a header, written as in a condition: JSON, or else a text."""
    return json_or_text(text)

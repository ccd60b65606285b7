"""The options `--filter` and `--match`, whose grammar is that of the API."""

from __future__ import annotations

import json
from typing import Any, Final

from leveret.broker.management.cli.command import CommandContext
from leveret.broker.management.cli.faults import bad_argument
from leveret.policies.message_filter import CONDITIONS, FilterError, json_or_text, parse_conditions, read_filter

#: Explanation of the option.
FILTER_HELP: Final = (
    "--filter <condition>",
    f"{', '.join(CONDITIONS)}, or a JSON object of conditions; messages must match all filters, or with match=any one",
)
MATCH_HELP: Final = ("--match all|any", "whether all filters must match (default), or one")


def read_filter_options(context: CommandContext) -> dict[str, Any] | None:
    """Parse the options `--filter` and `--match` into the `filter` object of the API; None without conditions.

    Raises:
        UsageFault: See read_conditions().
    """
    conditions = read_conditions(context.text("filter"))
    if "match" in context.options:
        conditions["match"] = context.text("match")
        read_conditions(json.dumps(conditions))
    return conditions or None


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

"""Parses arguments that are JSON documents."""

from __future__ import annotations

import json
from typing import Any

from leveret.broker.management.cli.faults import failed


def parse_json(text: str) -> Any:
    """Decode an argument.

    Raises:
        CommandFault: the argument is not JSON (exit status 69).
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise failed("JSON decoding error. Reason: badarg") from error


def _refuse(constant: str) -> Any:
    # Python accepts NaN and Infinity, which JSON does not have.
    raise ValueError(constant)


def parse_object(text: str, what: str) -> dict[str, Any]:
    """Decode an argument that must be a JSON object.

    Args:
        text: the argument.
        what: description of the argument, for the error message.

    Raises:
        CommandFault: the argument is not a JSON object (exit status 69).
    """
    found = parse_json(text)
    if not isinstance(found, dict):
        raise failed(f"Validation failed\n\n{what} should be a JSON object, actually was {text}\n")
    return found

"""JSON documents given as arguments."""

from __future__ import annotations

import json
from typing import Any

from leveret.broker.management.cli.faults import failed


def document(text: str) -> Any:
    """Decode an argument.

    Raises:
        CommandFault: it is no JSON (69).
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise failed("JSON decoding error. Reason: badarg") from error


def _refuse(constant: str) -> Any:
    # Python takes NaN and Infinity, JSON has neither.
    raise ValueError(constant)


def mapping(text: str, what: str) -> dict[str, Any]:
    """Decode an argument that has to be an object.

    Args:
        text: the argument.
        what: it is, for the message.

    Raises:
        CommandFault: it is no JSON, or another kind of it (69).
    """
    found = document(text)
    if not isinstance(found, dict):
        raise failed(f"Validation failed\n\n{what} should be a JSON object, actually was {text}\n")
    return found

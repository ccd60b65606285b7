"""Sets and clears what is stored as runtime parameters: parameters, policies and limits. Reads their JSON documents."""

from __future__ import annotations

import json
from typing import Any

from leveret.broker.management.cli.command import CommandContext
from leveret.broker.management.cli.faults import ApiFault, failed, no_such_vhost


def put(context: CommandContext, path: tuple[str, ...], body: Any, **query: Any) -> Any:
    """Set a definition. Reports an unknown virtual host as rabbitmqctl does.

    Raises:
        CommandFault: the virtual host does not exist (exit status 65), or the definition is invalid (69).
    """
    try:
        return context.api.put(*path, body=body, **query)
    except ApiFault as fault:
        if fault.not_found:
            raise no_such_vhost(context.vhost) from fault
        if fault.status == 400:
            raise failed(fault.reason) from fault
        raise


def clear(context: CommandContext, path: tuple[str, ...]) -> None:
    """Delete a definition.

    Raises:
        CommandFault: the definition does not exist (exit status 69).
    """
    try:
        context.api.delete(*path)
    except ApiFault as fault:
        if fault.not_found:
            raise failed("Parameter does not exist") from fault
        raise


def parse_json(text: str) -> Any:
    """Decode an argument.

    Raises:
        CommandFault: the argument is not JSON (exit status 69).
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise failed(f"JSON decoding error: {error.msg} at character {error.pos + 1}") from error
    except (ValueError, RecursionError) as error:
        raise failed(f"JSON decoding error: {error}") from error


def _refuse(constant: str) -> Any:
    # Python accepts NaN and Infinity, which JSON does not have.
    raise ValueError(f"{constant} is not JSON")


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

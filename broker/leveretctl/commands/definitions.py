"""Commands that set runtime parameters, and that export and import definitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from leveret.broker.leveretctl.command import CommandContext, Outcome, Result, ResultRows, command
from leveret.broker.leveretctl.command_errors import (
    DATA,
    ApiFault,
    CommandFault,
    bad_argument,
    failed,
    no_such_vhost,
)
from leveret.broker.leveretctl.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.leveretctl.printing import ProgressLine
from leveret.broker.leveretctl.selectable_columns import list_rows, table_columns
from leveret.broker.management.fields import PARAMETER


def put(context: CommandContext, path: tuple[str, ...], body: Any, **query: Any) -> Any:
    """Set a definition. Reports an unknown virtual host as rabbitmqctl does.

    Raises:
        CommandFault: the virtual host does not exist (exit status 65).
    """
    try:
        return context.api.put(*path, body=body, **query)
    except ApiFault as fault:
        if fault.not_found:
            raise no_such_vhost(context.vhost) from fault
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
    """Decode an argument, described by `what`, that must be a JSON object.

    Raises:
        CommandFault: the argument is not a JSON object (exit status 69).
    """
    found = parse_json(text)
    if not isinstance(found, dict):
        raise failed(f"Validation failed\n\n{what} should be a JSON object, actually was {text}\n")
    return found


_COLUMNS: Final = table_columns(PARAMETER)
_COMPONENT: Final = Argument(
    "<component_name>", "component that uses the parameter, such as operator_policy or vhost-limits"
)
_NAME: Final = Argument("<name>", "the parameter's name")
_VALUE: Final = Argument("<value>", "any JSON value")


@command((VHOST, HEADERS, TIMEOUT), banner='Listing runtime parameters for vhost "{context.vhost}" ...')
def list_parameters(context: CommandContext) -> ResultRows:
    """Lists runtime parameters for a virtual host."""
    found = [each for each in context.api.get("parameters") if each["vhost"] == context.vhost]
    if not found:
        context.require(no_such_vhost(context.vhost), "vhosts", context.vhost)
    found.sort(key=lambda each: (each["component"], each["name"]))
    return list_rows(_COLUMNS, found, "component", "name", "value")


@command(
    (VHOST, _COMPONENT, _NAME, _VALUE),
    banner='Setting runtime parameter "{1}" for component "{0}" to "{2}" in vhost "{context.vhost}" ...',
)
def set_parameter(context: CommandContext, component: str, name: str, value: str) -> None:
    """Sets a runtime parameter."""
    put(context, ("parameters", component, context.vhost, name), {"value": parse_json(value)})


@command(
    (VHOST, _COMPONENT, _NAME),
    banner='Clearing runtime parameter "{1}" for component "{0}" on vhost "{context.vhost}" ...',
)
def clear_parameter(context: CommandContext, component: str, name: str) -> None:
    """Clears a runtime parameter."""
    clear(context, ("parameters", component, context.vhost, name))


@command((HEADERS, TIMEOUT), banner="Listing global runtime parameters ...")
def list_global_parameters(context: CommandContext) -> ResultRows:
    """Lists global runtime parameters."""
    return list_rows(_COLUMNS, context.api.get("global-parameters"), "name", "value")


@command((_NAME, _VALUE), banner='Setting global runtime parameter "{0}" to "{1}" ...')
def set_global_parameter(context: CommandContext, name: str, value: str) -> None:
    """Sets a global runtime parameter."""
    put(context, ("global-parameters", name), {"value": parse_json(value)})


@command((_NAME,), banner='Clearing global runtime parameter "{0}" ...')
def clear_global_parameter(context: CommandContext, name: str) -> None:
    """Clears a global runtime parameter."""
    clear(context, ("global-parameters", name))


_STARTED: Final = "Successfully started definition import. This process is asynchronous and can take some time."
_STANDARD_STREAM: Final = "-"
_BYTE_ORDER_MARK: Final = "\ufeff"
# Keys whose lists may be large, in dependency order.
_SPLIT_KEYS: Final = ("exchanges", "queues", "bindings")
_BATCH: Final = 1_000


def _check_format(context: CommandContext) -> None:
    given = context.text("format", "json")
    if given not in ("json", "erlang"):
        raise bad_argument("Format should be either json or erlang")
    if given == "erlang":
        raise bad_argument("Leveret does not support Erlang terms: format should be json")


def _check_export(context: CommandContext) -> None:
    _check_format(context)
    path = context.arguments[0]
    if path != _STANDARD_STREAM and not Path(path).parent.is_dir():
        raise bad_argument(f"Directory {Path(path).parent} does not exist")


def _export_banner(context: CommandContext, path: str) -> str:
    # On standard output the banner would make the JSON invalid.
    return "" if path == _STANDARD_STREAM else f'Exporting definitions in JSON to a file at "{path}" ...'


@command(
    (
        Argument('<file_path | "-">', "file to write; - is standard output", "<file_path>"),
        option("format", "json"),
        TIMEOUT,
    ),
    banner=_export_banner,
    check=_check_export,
)
def export_definitions(context: CommandContext, path: str) -> Outcome:
    """Writes users, virtual hosts, permissions, policies, queues, exchanges and bindings as JSON."""
    if path != _STANDARD_STREAM and Path(path).is_dir():
        raise failed(f"Path {path} is a directory", DATA)
    content = context.api.raw("GET", ("definitions",))
    if path == _STANDARD_STREAM:
        return Outcome(content.decode(), json.loads(content))
    try:
        # The file contains password hashes.
        Path(path).touch(mode=0o600)
        Path(path).write_bytes(content)
    except OSError as error:
        raise failed(f"Could not write to {path}: {error.strerror}", DATA) from error
    return Outcome()


def _check_import(context: CommandContext) -> None:
    _check_format(context)
    for path in context.arguments:
        if path != _STANDARD_STREAM and not Path(path).exists():
            raise bad_argument(f"File {path} does not exist")


def _import_banner(context: CommandContext, path: str = _STANDARD_STREAM) -> str:
    where = "standard input" if path == _STANDARD_STREAM else f'a file at "{path}"'
    return f"Importing definitions in JSON from {where} ..."


@command(
    (
        Argument('<file_path | "-">', "file to read; standard input if omitted or -", "<file_path>", least=0),
        option("format", "json"),
        option("skip-if-unchanged", "accepted and ignored: an import never changes identical objects"),
        TIMEOUT,
    ),
    banner=_import_banner,
    check=_check_import,
    timeout=None,
)
def import_definitions(context: CommandContext, path: str = _STANDARD_STREAM) -> Result:
    """Imports definitions that Leveret or RabbitMQ exported; deletes nothing."""
    parts = list(_parts(_read(context, path)))
    with ProgressLine("Importing", sum(size for size, _ in parts), silent=context.silent) as progress:
        imported = 0
        notices: list[str] = []
        for size, part in parts:
            _send(context, part)
            notices += filter(None, [context.api.notice])
            imported += size
            progress.update(imported)
    shown = {"node": context.node, "result": "ok", **({"message": "; ".join(notices)} if notices else {})}
    return Outcome("\n".join([_STARTED, *notices]), shown if context.json else None)


def _read(context: CommandContext, path: str) -> dict[str, Any]:
    try:
        text = context.stdin.read() if path == _STANDARD_STREAM else Path(path).read_text("utf-8")
        found = parse_json(text.removeprefix(_BYTE_ORDER_MARK))
    except OSError as error:
        raise failed(f"Could not read {path}: {error.strerror}", DATA) from error
    except (CommandFault, UnicodeDecodeError) as error:
        raise failed("Failed to deserialise input (format: JSON)", DATA) from error
    if not isinstance(found, dict):
        raise failed("Failed to deserialise input (format: JSON) (error: it is not an object)", DATA)
    return found


def _parts(definitions: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the definitions in parts with their sizes. Small definitions are one part, so one request."""
    sizes = {key: len(value) for key, value in definitions.items() if isinstance(value, list)}
    if sum(sizes.values()) <= _BATCH:
        yield sum(sizes.values()), definitions
        return
    small = {key: value for key, value in definitions.items() if key not in _SPLIT_KEYS}
    yield sum(size for key, size in sizes.items() if key not in _SPLIT_KEYS), small
    for key in _SPLIT_KEYS:
        entries = definitions.get(key) or []
        for start in range(0, len(entries), _BATCH):
            part = entries[start : start + _BATCH]
            yield len(part), {key: part}


def _send(context: CommandContext, part: dict[str, Any]) -> None:
    try:
        context.api.post("definitions", body=part)
    except ApiFault as fault:
        word, _, vhost = fault.reason.partition(", ")
        if word == "no_such_vhost":
            raise no_such_vhost(vhost) from fault
        raise

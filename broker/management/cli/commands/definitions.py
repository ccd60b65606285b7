"""The commands export_definitions and import_definitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ok_result
from leveret.broker.management.cli.faults import DATA, ApiFault, CommandFault, bad_argument, failed, no_such_vhost
from leveret.broker.management.cli.progress import ProgressLine
from leveret.broker.management.cli.runtime_parameters import parse_json

SECTION: Final = "Definitions"
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


def _export(context: CommandContext) -> Result:
    path = context.arguments[0]
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
    return ok_result(context) if not context.json else Outcome()


def _source(context: CommandContext) -> str:
    return context.arguments[0] if context.arguments else _STANDARD_STREAM


def _check_import(context: CommandContext) -> None:
    _check_format(context)
    path = _source(context)
    if path != _STANDARD_STREAM and not Path(path).exists():
        raise bad_argument(f"File {path} does not exist")


def _import(context: CommandContext) -> Result:
    definitions = _read(context)
    parts = list(_parts(definitions))
    silent = context.flag("silent") or context.flag("quiet")
    with ProgressLine("Importing", sum(size for size, _ in parts), silent=silent) as progress:
        imported = 0
        notices: list[str] = []
        for size, part in parts:
            _send(context, part)
            notices += filter(None, [context.api.notice])
            imported += size
            progress.update(imported)
    shown = {"node": context.node, "result": "ok", **({"message": "; ".join(notices)} if notices else {})}
    return Outcome("\n".join([_STARTED, *notices]), shown if context.json else None)


def _read(context: CommandContext) -> dict[str, Any]:
    path = _source(context)
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
        if fault.status == 400:
            raise failed(fault.reason) from fault
        raise


def _export_banner(context: CommandContext) -> str:
    path = context.arguments[0]
    # On standard output the banner would make the JSON invalid.
    return "" if path == _STANDARD_STREAM else f'Exporting definitions in JSON to a file at "{path}" ...'


def _import_banner(context: CommandContext) -> str:
    path = _source(context)
    where = "standard input" if path == _STANDARD_STREAM else f'a file at "{path}"'
    return f"Importing definitions in JSON from {where} ..."


COMMANDS: Final = (
    Command(
        name="export_definitions",
        section=SECTION,
        summary="Writes users, virtual hosts, permissions, policies, queues, exchanges and bindings as JSON",
        usage='<file_path | "-"> [--format json] [--timeout <timeout>]',
        run=_export,
        min_arguments=1,
        max_arguments=1,
        options=("format",),
        check=_check_export,
        banner=_export_banner,
        explanations=(("<file_path>", "file to write; - is standard output"), ("--format", "json")),
    ),
    Command(
        name="import_definitions",
        section=SECTION,
        summary="Imports definitions that Leveret or RabbitMQ exported; deletes nothing",
        usage='<file_path | "-"> [--format json] [--skip-if-unchanged] [--timeout <timeout>]',
        run=_import,
        max_arguments=1,
        options=("format", "skip-if-unchanged"),
        timeout=None,
        check=_check_import,
        banner=_import_banner,
        explanations=(
            ("<file_path>", "file to read; standard input if omitted or -"),
            ("--format", "json"),
            ("--skip-if-unchanged", "accepted and ignored: an import never changes identical objects"),
        ),
    ),
)

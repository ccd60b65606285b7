"""The command check_migration, which RabbitMQ does not have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.leveretctl.command import CommandContext, Result, ResultRows, command
from leveret.broker.leveretctl.command_errors import DATA, ApiFault, RequestTimeout, Unreachable, UsageFault, failed
from leveret.broker.leveretctl.command_line import HEADERS, Address, option, parse_address

if TYPE_CHECKING:
    from leveret.broker.leveretctl.api import Api
    from leveret.broker.migration_check.findings import Observed, Row

#: Exit status if something is not supported.
_UNSUPPORTED: Final = 1
#: Names in a row of the tables; `--formatter json` has all of them.
_SHOWN: Final = 3
#: Seconds to wait for an answer of the other broker.
PATIENCE: Final = 60
_COLUMNS: Final = ("verdict", "area", "count", "names", "what", "advice")
_BYTE_ORDER_MARK: Final = "\ufeff"


def _check(context: CommandContext) -> None:
    if not context.text("from"):
        raise UsageFault("--from is missing: the HTTP API of a RabbitMQ, or a file with its definitions")


@command(
    (
        option(
            "from",
            "the other broker, as http://user:password@host:port, or a file with its definitions",
            line="--from <place>",
        ),
        HEADERS,
    ),
    name="check_migration",
    banner="Checking what would be different here ...",
    check=_check,
    offline=True,
)
def _check_migration(context: CommandContext) -> Result:
    # Imports the broker, which other commands do not need.
    """Says what would be different if a RabbitMQ moved here; exits with 1 if something is not supported."""
    from leveret.broker.migration_check.findings import count_verdicts
    from leveret.broker.migration_check.migration_report import check_migration

    place = context.text("from")
    is_url = place.startswith(("http://", "https://"))
    document, seen = _read_broker(place, context.text("cacert")) if is_url else _read_file(place)
    try:
        rows = check_migration(document, seen)
    except ValueError as error:
        raise failed(f"{_without_password(place)} has no definitions: {error}", DATA) from error
    except OSError as error:
        raise failed(f"the definitions cannot be tried without a temporary directory: {error.strerror}") from error
    counts = count_verdicts(rows)
    return ResultRows(
        _COLUMNS,
        map(_to_columns, rows),
        json={"counts": counts, "rows": [row.to_json() for row in rows]},
        footer=", ".join(f"{count} {verdict}" for verdict, count in counts.items()),
        status=_UNSUPPORTED if counts["not supported"] else 0,
    )


def _to_columns(row: Row) -> dict[str, Any]:
    more = len(row.names) - _SHOWN
    shown = ", ".join(row.names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return {**row._asdict(), "verdict": str(row.verdict), "count": len(row.names), "names": shown}


def _read_file(place: str) -> tuple[dict[str, Any], Observed]:
    from leveret.broker.migration_check.findings import Observed

    try:
        document = json.loads(Path(place).read_text("utf-8").removeprefix(_BYTE_ORDER_MARK))
    except OSError as error:
        raise failed(f"Could not read {place}: {error.strerror}", DATA) from error
    except (ValueError, RecursionError) as error:
        raise failed(f"{place} is not JSON: {error}", DATA) from error
    if not isinstance(document, dict):
        raise failed(f"{place} has no definitions: it is not a JSON object", DATA)
    return document, Observed()


def _read_broker(place: str, ca_file: str) -> tuple[dict[str, Any], Observed]:
    """Return the definitions of a broker, and what else its API shows.

    Raises:
        CommandFault: It cannot be reached, or refuses.
        UsageFault: It is not an HTTP URL.
    """
    from leveret.broker.leveretctl.api import Api
    from leveret.broker.migration_check.findings import Observed

    try:
        address = parse_address(place)._replace(ca_file=ca_file)
    except ValueError as error:
        raise UsageFault(str(error)) from error
    api = Api(address, PATIENCE)
    try:
        document = read_definitions(api)
        with _asking(address):
            return document, Observed(**dict(_observe(api)))
    finally:
        api.close()


def read_definitions(api: Api, hint: str = "") -> dict[str, Any]:
    """Return the definitions of another broker.

    Args:
        hint: What helps if it cannot be reached.
    Raises:
        CommandFault: It cannot be reached, refuses, or is no RabbitMQ (exit status 69).
    """
    with _asking(api.address, hint):
        document = api.get("definitions")
        if not isinstance(document, dict):
            raise ValueError(document)
        return document


@contextmanager
def _asking(address: Address, hint: str = "") -> Iterator[None]:
    """Name the other broker in what goes wrong while it is asked."""
    try:
        yield
    except ApiFault as fault:
        needs = "; the user needs the tag administrator" if fault.status in (401, 403) else ""
        raise failed(f"{address} answers {fault.status}: {fault.reason}{needs}") from fault
    except Unreachable as fault:
        raise failed(f"{address} cannot be reached: {fault}{hint}") from fault
    except RequestTimeout as fault:
        raise failed(f"{address} has not answered for {PATIENCE} s") from fault
    except ValueError as error:
        raise failed(f"{address} does not speak RabbitMQ's HTTP API") from error


#: Lists of the API, and the fields of theirs that count.
_LISTS: Final = {
    "nodes": "name,enabled_plugins",
    "connections": "name,protocol,client_properties",
    "channels": "name,global_prefetch_count",
    "queues": "name,vhost,exclusive",
}


def _observe(api: Api) -> Iterator[tuple[str, Any]]:
    yield "overview", api.get("overview")
    for name, columns in _LISTS.items():
        yield name, api.get(name, columns=columns)


def _without_password(place: str) -> str:
    try:
        return str(parse_address(place)) if "://" in place else place
    except ValueError:
        return "--from"

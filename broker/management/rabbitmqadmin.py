#!/usr/bin/env python3
"""The commands of RabbitMQ's rabbitmqadmin, for the HTTP API of Leveret or RabbitMQ.

Leveret serves this file at /cli/rabbitmqadmin. It is Leveret's own, and needs Python 3.10 or newer and nothing else.
"""

from __future__ import annotations

import base64
import configparser
import http.client
import json
import os
import ssl
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

# What can be listed: path of the API, whether it takes a virtual host, and the columns of a table without arguments.
LISTS: dict[str, tuple[str, bool, tuple[str, ...]]] = {
    "bindings": ("bindings", True, ("source", "destination", "routing_key")),
    "channels": ("channels", False, ("name", "user")),
    "connections": ("connections", False, ("name", "user", "channels")),
    "consumers": ("consumers", True, ()),
    "exchanges": ("exchanges", True, ("name", "type")),
    "nodes": ("nodes", False, ("name", "type", "mem_used")),
    "operator_policies": ("operator-policies", True, ()),
    "parameters": ("parameters", False, ()),
    "permissions": ("permissions", False, ()),
    "policies": ("policies", True, ()),
    "queues": ("queues", True, ("name", "messages")),
    "users": ("users", False, ()),
    "vhost_limits": ("vhost-limits", False, ()),
    "vhosts": ("vhosts", False, ("name", "messages")),
}
OVERVIEW = ("rabbitmq_version", "cluster_name", "queue_totals.messages", "object_totals.queues")
# What can be declared: path with the arguments in it, arguments that must be there, and those with their defaults.
DECLARATIONS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "exchange": (
        "exchanges/{vhost}/{name}",
        ("name", "type"),
        {"auto_delete": False, "durable": True, "internal": False, "arguments": {}},
    ),
    "queue": (
        "queues/{vhost}/{name}",
        ("name",),
        {"auto_delete": False, "durable": True, "arguments": {}, "node": None, "queue_type": None},
    ),
    "vhost": ("vhosts/{name}", ("name",), {"tracing": None, "description": None, "tags": None}),
    "user": ("users/{name}", ("name", "tags"), {"password": None, "password_hash": None, "hashing_algorithm": None}),
    "permission": ("permissions/{vhost}/{user}", ("vhost", "user", "configure", "write", "read"), {}),
    "parameter": ("parameters/{component}/{vhost}/{name}", ("component", "name", "value"), {}),
    "policy": ("policies/{vhost}/{name}", ("name", "pattern", "definition"), {"priority": 0, "apply-to": None}),
    "operator_policy": (
        "operator-policies/{vhost}/{name}",
        ("name", "pattern", "definition"),
        {"priority": 0, "apply-to": None},
    ),
    "vhost_limit": ("vhost-limits/{vhost}/{name}", ("vhost", "name", "value"), {}),
}
# What can be deleted by its path alone; a binding has more.
DELETIONS = {
    **{name: path for name, (path, _, _) in DECLARATIONS.items()},
    "binding": "bindings/{vhost}/e/{source}/{kind}/{destination}/{properties_key}",
}
# Arguments that are JSON; others are text, or one of the words below.
JSON_ARGUMENTS = ("arguments", "definition", "properties", "value")
NUMBERS = ("priority", "count", "truncate")
WORDS = {"true": True, "false": False}


class AdminError(Exception):
    """What was asked for cannot be done; the text says why."""


def parse_options(argv: Sequence[str]) -> Namespace:
    """Parse the command line, with defaults from the configuration file."""
    parser = ArgumentParser(
        prog="rabbitmqadmin",
        description=__doc__,
        epilog=COMMANDS_HELP,
        formatter_class=RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("-c", "--config", default="~/.rabbitmqadmin.conf", help="configuration file (default: %(default)s)")
    add("-N", "--node", default="default", help="section of the configuration file (default: %(default)s)")
    add("-H", "--host", default="localhost", help="host of the API (default: %(default)s)")
    add("-P", "--port", type=int, help="port of the API (default: 15672, with --ssl 15671)")
    add("--path-prefix", default="", help="path before /api")
    add("-V", "--vhost", help="virtual host (default: all for list, / for others)")
    add("-u", "--username", default="guest", help="user (default: %(default)s)")
    add("-p", "--password", default="guest", help="password; others on this machine see it: use the configuration file")
    add("-s", "--ssl", action="store_true", help="connect with TLS")
    add("--ssl-ca-cert-file", help="PEM file of the authority of the broker's certificate")
    add("--ssl-cert-file", help="PEM file of a client certificate")
    add("--ssl-key-file", help="PEM file of its key")
    add("-k", "--ssl-insecure", action="store_true", help="do not verify the broker's certificate")
    add("-t", "--request-timeout", type=float, default=120.0, help="seconds to wait for an answer")
    add("-q", "--quiet", action="store_true", help="say nothing if it worked")
    add("-f", "--format", default="table", choices=sorted(FORMATS), help="format of lists (default: %(default)s)")
    add("-S", "--sort", help="column by which lists are sorted")
    add("-R", "--sort-reverse", action="store_true", help="sort backwards")
    add("-d", "--depth", type=int, default=1, help="depth to which tables show objects (default: %(default)s)")
    add("words", nargs="+", metavar="COMMAND")
    known = parser.parse_intermixed_args(argv)
    path = os.path.expanduser(known.config)
    if os.path.exists(path):
        settings = configparser.ConfigParser(interpolation=None)
        settings.read(path)
        if settings.has_section(known.node):
            parser.set_defaults(**_configured(settings, known.node))
            known = parser.parse_intermixed_args(argv)
    # The virtual host of commands that need one.
    known.in_vhost = known.vhost or "/"
    return known


def _configured(settings: configparser.ConfigParser, section: str) -> dict[str, Any]:
    names = {"hostname": "host"}
    found: dict[str, Any] = {}
    for name, value in settings.items(section):
        option = names.get(name, name)
        if option in ("ssl", "ssl_insecure"):
            found[option] = settings.getboolean(section, name)
        else:
            found[option] = int(value) if option == "port" else value
    return found


def request(options: Namespace, method: str, path: str, body: Any = None, query: dict[str, Any] | None = None) -> bytes:
    """Send a request to the API; return the body of the answer.

    Args:
        path: path after /api/, percent-encoded.
        body: JSON value; None for no body.
    Raises:
        AdminError: it is refused, or nobody answers.
    """
    target = f"{options.path_prefix.rstrip('/')}/api/{path}"
    login = base64.b64encode(f"{options.username}:{options.password}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    connection = _connect(options)
    try:
        full = f"{target}?{urlencode(query)}" if query else target
        connection.request(method, full, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        said = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise AdminError(f"Could not connect: {error}") from error
    finally:
        connection.close()
    if answer.status >= 400:
        raise AdminError(_refusal(answer.status, target, said))
    return said


def _connect(options: Namespace) -> http.client.HTTPConnection:
    port = options.port or (15671 if options.ssl else 15672)
    if not options.ssl:
        return http.client.HTTPConnection(options.host, port, timeout=options.request_timeout)
    try:
        context = ssl.create_default_context(cafile=options.ssl_ca_cert_file)
        if options.ssl_insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if options.ssl_cert_file:
            context.load_cert_chain(options.ssl_cert_file, options.ssl_key_file)
    except OSError as error:
        raise AdminError(f"Could not read certificates: {error}") from error
    return http.client.HTTPSConnection(options.host, port, timeout=options.request_timeout, context=context)


def _refusal(status: int, target: str, said: bytes) -> str:
    if status == 401:
        return f"Access refused: {target}"
    if status == 404:
        return f"Not found: {target}"
    try:
        reason = json.loads(said)["reason"]
    except (ValueError, KeyError, TypeError):
        reason = said.decode("utf-8", "replace").strip() or f"HTTP status {status}"
    return reason if isinstance(reason, str) else json.dumps(reason)


# --- arguments --------------------------------------------------------------------------------------------------------


def parse_arguments(words: Iterable[str]) -> dict[str, Any]:
    """Return the values of arguments like `name=q durable=true`."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise AdminError(f"Argument {word!r} is not of the form name=value")
        try:
            found[name] = json.loads(value) if name in JSON_ARGUMENTS else int(value) if name in NUMBERS else value
        except ValueError:
            raise AdminError(f"Could not parse {name}: {value}") from None
        if isinstance(found[name], str):
            found[name] = WORDS.get(value, value)
    return found


def require(given: dict[str, Any], names: Iterable[str]) -> None:
    """Refuse arguments among which a name is missing."""
    missing = [name for name in names if name not in given]
    if missing:
        raise AdminError(f"Missing mandatory argument: {', '.join(missing)}")


def allow(given: dict[str, Any], names: Iterable[str]) -> None:
    """Refuse arguments of other names."""
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise AdminError(f"Unrecognised argument: {', '.join(unknown)}")


def fill(template: str, given: dict[str, Any]) -> str:
    """Return a path with its arguments, percent-encoded."""
    return template.format_map({name: quote(str(value), safe="") for name, value in given.items()})


# --- commands ---------------------------------------------------------------------------------------------------------


def list_objects(options: Namespace, words: Sequence[str]) -> str | None:
    """Handle `list`."""
    if not words or words[0] not in LISTS:
        raise AdminError(f"list what? One of {', '.join(LISTS)}")
    path, has_vhost, columns = LISTS[words[0]]
    if has_vhost and options.vhost:
        path = f"{path}/{quote(options.vhost, safe='')}"
    query = {"columns": ",".join(words[1:])} if words[1:] else {}
    if options.sort:
        query |= {"sort": options.sort}
    if options.sort_reverse:
        query |= {"sort_reverse": "true"}
    found = json.loads(request(options, "GET", path, query=query))
    FORMATS[options.format](found, tuple(words[1:]) or columns, options)
    return None


def show(options: Namespace, words: Sequence[str]) -> str | None:
    """Handle `show overview`."""
    if words[:1] != ["overview"]:
        raise AdminError("show what? overview")
    FORMATS[options.format]([json.loads(request(options, "GET", "overview"))], tuple(words[1:]) or OVERVIEW, options)
    return None


def declare(options: Namespace, words: Sequence[str]) -> str:
    """Handle `declare`."""
    if not words or words[0] not in (*DECLARATIONS, "binding"):
        raise AdminError(f"declare what? One of {', '.join((*DECLARATIONS, 'binding'))}")
    kind, given = words[0], parse_arguments(words[1:])
    if kind == "binding":
        require(given, ("source", "destination"))
        given = {
            "vhost": options.in_vhost,
            "destination_type": "queue",
            "routing_key": "",
            "arguments": {},
            **given,
        }
        allow(given, ("vhost", "source", "destination", "destination_type", "routing_key", "arguments"))
        path = fill(
            "bindings/{vhost}/e/{source}/{kind}/{destination}", {**given, "kind": given["destination_type"][:1]}
        )
        request(options, "POST", path, {"routing_key": given["routing_key"], "arguments": given["arguments"]})
    else:
        template, needed, others = DECLARATIONS[kind]
        require(given, needed)
        allow(given, ("vhost", *needed, *others))
        body = {name: value for name, value in {**others, **given}.items() if value is not None}
        if "queue_type" in body:
            body["arguments"] = {**body["arguments"], "x-queue-type": body.pop("queue_type")}
        request(options, "PUT", fill(template, {"vhost": options.in_vhost, **given}), body)
    return f"{kind} declared"


def delete(options: Namespace, words: Sequence[str]) -> str:
    """Handle `delete`."""
    if not words or words[0] not in DELETIONS:
        raise AdminError(f"delete what? One of {', '.join(DELETIONS)}")
    kind, given = words[0], {"vhost": options.in_vhost, **parse_arguments(words[1:])}
    if kind == "binding":
        require(given, ("source", "destination"))
        given = {"destination_type": "queue", "properties_key": "~", **given}
        given["kind"] = given["destination_type"][:1]
        # It is encoded already.
        path = fill(DELETIONS[kind].replace("/{properties_key}", ""), given) + f"/{given['properties_key']}"
    else:
        names = [part[1:-1] for part in DELETIONS[kind].split("/") if part.startswith("{")]
        require(given, names)
        allow(given, ("vhost", *names))
        path = fill(DELETIONS[kind], given)
    request(options, "DELETE", path)
    return f"{kind} deleted"


def purge(options: Namespace, words: Sequence[str]) -> str:
    """Handle `purge queue`."""
    given = {"vhost": options.in_vhost, **parse_arguments(words[1:])}
    if words[:1] != ["queue"]:
        raise AdminError("purge what? queue")
    require(given, ("name",))
    request(options, "DELETE", fill("queues/{vhost}/{name}/contents", given))
    return "queue purged"


def close(options: Namespace, words: Sequence[str]) -> str:
    """Handle `close connection`."""
    given = parse_arguments(words[1:])
    if words[:1] != ["connection"]:
        raise AdminError("close what? connection")
    require(given, ("name",))
    request(options, "DELETE", fill("connections/{name}", given))
    return "connection closed"


def publish(options: Namespace, words: Sequence[str]) -> str:
    """Handle `publish`; the body comes from stdin without an argument payload."""
    given = parse_arguments(words)
    require(given, ("routing_key",))
    allow(given, ("vhost", "exchange", "routing_key", "payload", "payload_encoding", "properties"))
    given = {"vhost": options.in_vhost, "payload_encoding": "string", "properties": {}, **given}
    given["exchange"] = given.get("exchange") or "amq.default"
    payload = given["payload"] if "payload" in given else sys.stdin.read()
    # An argument `true` is text here.
    body = {**given, "payload": payload if isinstance(payload, str) else str(payload).lower()}
    answer = json.loads(request(options, "POST", fill("exchanges/{vhost}/{exchange}/publish", given), body))
    return "Message published" if answer["routed"] else "Message published but NOT routed"


def get(options: Namespace, words: Sequence[str]) -> str | None:
    """Handle `get`."""
    given = parse_arguments(words)
    require(given, ("queue",))
    allow(given, ("vhost", "queue", "count", "ackmode", "payload_file", "encoding", "truncate"))
    given = {"vhost": options.in_vhost, "count": 1, "ackmode": "ack_requeue_true", "encoding": "auto", **given}
    path = given.pop("payload_file", None)
    found = json.loads(request(options, "POST", fill("queues/{vhost}/{queue}/get", given), given))
    if path is None:
        FORMATS[options.format](found, MESSAGE_COLUMNS, options)
        return None
    if not found:
        return "No items"
    body = found[0]["payload"]
    with open(path, "wb") as file:
        file.write(base64.b64decode(body) if found[0]["payload_encoding"] == "base64" else body.encode())
    return f"Payload written to {path}"


def export_definitions(options: Namespace, words: Sequence[str]) -> str:
    """Handle `export`."""
    (path,) = _one_file(words)
    said = request(options, "GET", _definitions_path(options))
    with open(path, "wb") as file:
        file.write(said)
    return f'Exported definitions for {options.host} to "{path}"'


def import_definitions(options: Namespace, words: Sequence[str]) -> str:
    """Handle `import`."""
    (path,) = _one_file(words)
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except ValueError as error:
        raise AdminError(f"{path} is not JSON: {error}") from error
    request(options, "POST", _definitions_path(options), document)
    return f'Uploaded definitions from "{options.host}" to {path}. The import process may take some time.'


def _one_file(words: Sequence[str]) -> Sequence[str]:
    if len(words) != 1:
        raise AdminError("name one file")
    return words


def _definitions_path(options: Namespace) -> str:
    return "definitions" if options.vhost is None else f"definitions/{quote(options.vhost, safe='')}"


COMMANDS: dict[str, Callable[[Namespace, Sequence[str]], str | None]] = {
    "list": list_objects,
    "show": show,
    "declare": declare,
    "delete": delete,
    "purge": purge,
    "close": close,
    "publish": publish,
    "get": get,
    "export": export_definitions,
    "import": import_definitions,
}
MESSAGE_COLUMNS = (
    *("routing_key", "exchange", "message_count", "payload", "payload_bytes", "payload_encoding"),
    *("properties", "redelivered"),
)
COMMANDS_HELP = f"""\
commands:
  list {"|".join(LISTS)} [column ...]
  show overview [column ...]
  declare {"|".join((*DECLARATIONS, "binding"))} name=value ...
  delete {"|".join(DELETIONS)} name=value ...
  purge queue name=...
  close connection name=...
  publish routing_key=... [exchange=...] [payload=...] [properties=...]
  get queue=... [count=...] [ackmode=ack_requeue_true|ack_requeue_false|...] [payload_file=...]
  export FILE
  import FILE"""


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")


# --- formats ----------------------------------------------------------------------------------------------------------


def cells(found: Sequence[dict[str, Any]], columns: Sequence[str], depth: int) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of a table."""
    rows = [dict(_flatten(each, depth)) for each in found]
    names = list(columns) or list(dict.fromkeys(name for row in rows for name in row))
    if not columns and "name" in names:
        names.insert(0, names.pop(names.index("name")))
    return names, [[_text(_at(each, name)) for name in names] for each in found]


def _flatten(value: dict[str, Any], depth: int, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, each in value.items():
        if isinstance(each, dict) and each and depth > 1:
            yield from _flatten(each, depth - 1, f"{prefix}{name}.")
        elif not isinstance(each, (dict, list)) or depth > 1 or not prefix:
            yield f"{prefix}{name}", each


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def print_table(found: Sequence[dict[str, Any]], columns: Sequence[str], options: Namespace) -> None:
    """Print a table with borders."""
    if not found:
        say("No items")
        return
    names, rows = cells(found, columns, options.depth)
    widths = [max(len(name), *(len(row[at]) for row in rows)) for at, name in enumerate(names)]
    border = f"+{'+'.join('-' * (width + 2) for width in widths)}+"

    def line(row: Sequence[str]) -> str:
        return f"|{'|'.join(f' {cell:<{width}} ' for cell, width in zip(row, widths, strict=True))}|"

    say("\n".join([border, line(names), border, *map(line, rows), border]))


def print_long(found: Sequence[dict[str, Any]], columns: Sequence[str], options: Namespace) -> None:
    """Print each object on lines of its own."""
    names, rows = cells(found, columns, options.depth)
    width = max(map(len, names), default=0)
    rule = "-" * 80
    say(rule)
    for row in rows:
        say("\n".join(f"{name:>{width}}: {cell}" for name, cell in zip(names, row, strict=True)))
        say(rule)


def print_tsv(found: Sequence[dict[str, Any]], columns: Sequence[str], options: Namespace) -> None:
    """Print values between tabs."""
    names, rows = cells(found, columns, options.depth)
    say("\n".join("\t".join(row) for row in [names, *rows]))


def print_kvp(found: Sequence[dict[str, Any]], columns: Sequence[str], options: Namespace) -> None:
    """Print names with their values."""
    names, rows = cells(found, columns, options.depth)
    for row in rows:
        say(" ".join(f'{name}="{cell}"' for name, cell in zip(names, row, strict=True)))


def print_bash(found: Sequence[dict[str, Any]], columns: Sequence[str], options: Namespace) -> None:
    """Print the names only, on one line."""
    say(" ".join(_text(each.get("name")) for each in found if "name" in each))


def print_raw_json(found: Any, columns: Sequence[str], options: Namespace) -> None:
    """Print JSON."""
    say(json.dumps(found))


def print_pretty_json(found: Any, columns: Sequence[str], options: Namespace) -> None:
    """Print JSON on several lines."""
    say(json.dumps(found, indent=2))


FORMATS: dict[str, Callable[[Any, Sequence[str], Namespace], None]] = {
    "bash": print_bash,
    "kvp": print_kvp,
    "long": print_long,
    "pretty_json": print_pretty_json,
    "raw_json": print_raw_json,
    "table": print_table,
    "tsv": print_tsv,
}


def main() -> NoReturn:
    """Run a command."""
    options = parse_options(sys.argv[1:])
    name, *words = options.words
    try:
        if name not in COMMANDS:
            raise AdminError(f"{name} is no command; see rabbitmqadmin --help")
        said = COMMANDS[name](options, words)
        if said and not options.quiet:
            say(said)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (AdminError, OSError) as error:
        sys.stderr.write(f"*** {error}\n")
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()

"""Arguments and options of commands, the parser that finds them on the command line, and the address that they name.

Parsing follows rabbitmqctl: long options take their value from the next argument or after `=`, flags have a `--no-`
form, short flags may be combined, negative numbers are values, `--` ends the options.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

FLAG: Final = "flag"
TEXT: Final = "text"
# Text whose values add up, one per line.
TEXTS: Final = "texts"
INTEGER: Final = "integer"
# A number, which may have a unit: 24h.
PERIOD: Final = "period"


class Argument(NamedTuple):
    """Argument of a command.

    Args:
        usage: how the usage line shows it: in brackets if it may be missing, with dots if it may be repeated.
        text: explanation in the help; empty leaves the argument out there.
        shown: name in the help; empty is that of the usage line.
        least: minimum number of arguments; None finds it from the usage line.
        columns: names of the columns that it selects.
    """

    usage: str
    text: str = ""
    shown: str = ""
    least: int | None = None
    columns: Collection[str] = ()

    @property
    def heading(self) -> str:
        """Name in the help."""
        return self.shown or self.usage

    @property
    def minimum(self) -> int:
        """Minimum number of arguments."""
        return int(not self.usage.startswith("[")) if self.least is None else self.least

    @property
    def maximum(self) -> float:
        """Maximum number of arguments."""
        return math.inf if "..." in self.usage else int(bool(self.usage))


class Option(NamedTuple):
    """Option of all commands or of some.

    Args:
        kind: type of its value.
        value: how the usage line shows its value: `<number>`, or `all|any` if these are all values.
        text: explanation in the help; empty leaves the option out there.
        line: how the usage line shows the option, if not as usual; it may show the next one too, whose line is empty.
        shown: name in the help, if not with the value of the usage line.
        values: values that completion offers, if the usage line does not list them.
        short: letters of its short forms.
    """

    name: str
    kind: str = FLAG
    value: str = ""
    text: str = ""
    line: str | None = None
    shown: str = ""
    values: tuple[str, ...] = ()
    short: str = ""

    @property
    def typed(self) -> str:
        """The option with its value."""
        return f"--{self.name} {self.value}".rstrip()

    @property
    def usage(self) -> str:
        """How the usage line shows the option."""
        return f"[{self.typed}]" if self.line is None else self.line

    @property
    def heading(self) -> str:
        """Name in the help."""
        return self.shown or self.typed

    @property
    def choices(self) -> list[str]:
        """Values that completion offers."""
        return list(self.values) or (self.value.strip("<>").split("|") if "|" in self.value else [])


# Options of every command. Node and cookie options have no effect, but existing scripts pass them.
_GENERAL: Final = (
    Option("cacert", TEXT),
    Option("dry-run"),
    Option("erlang-cookie", TEXT),
    Option("formatter", TEXT),
    Option("help", short="?h"),
    Option("longnames", short="l"),
    Option("node", TEXT, short="n"),
    Option("print-stacktrace"),
    Option("quiet", short="q"),
    Option("silent", short="s"),
    Option("timeout", INTEGER, "<timeout>", short="t"),
    Option("url", TEXT),
    Option("vhost", TEXT, "<vhost>", short="p"),
)
# Flags of some commands, which have nothing particular.
_FLAGS: Final = (
    "ack auto-delete back by-source cut-over detach force global internal list-commands local offline online"
    " remove-death skip-if-unchanged to-exchange transient"
)
# Options of some commands; an option has the same type in all of them.
_OWN: Final = (
    *map(Option, _FLAGS.split()),
    Option("age", INTEGER, "<seconds>", shown="--age"),
    Option("all", line="[--all|-a]", short="a"),
    Option("apply-to", TEXT, "<apply-to>"),
    Option("argument", TEXTS, "<name>=<value>"),
    Option("at", TEXT, "<time>"),
    Option("count", INTEGER, "<number>"),
    Option("death", TEXT, "first|last"),
    Option("default-queue-type", TEXT, "<quorum|classic|stream>"),
    Option("description", TEXT, "<description>"),
    Option("exchange", TEXT, "<exchange>"),
    Option("filter", TEXTS, "<condition>"),
    Option("for", TEXT, "<command>"),
    Option("format", TEXT, "json", shown="--format", values=("json",)),
    Option("from", TEXT, "<place>"),
    Option("from-http", TEXT, "<url>"),
    Option("header", TEXTS, "<name>=<value>"),
    Option("host", TEXT, "<address>"),
    Option("if-empty", line="[--if-empty|-e]", short="e"),
    Option("if-unused", line="[--if-unused|-u]", short="u"),
    Option("into-exchange", TEXT, "<exchange>"),
    Option("into-queue", TEXT, "<queue>"),
    Option("keys", TEXT, "<file>", line="--keys <file>"),
    Option("kind", TEXT, "<kind>"),
    Option("limit", INTEGER, "<number>"),
    Option("match", TEXT, "all|any"),
    Option("max-lost", INTEGER, "<number>"),
    Option("max-messages", INTEGER, "<number>"),
    Option("max-oldest", TEXT, "<duration>"),
    Option("object", TEXT, "<name>"),
    Option("operation", TEXT, "configure|write|read"),
    Option("output", TEXT, "<file>"),
    Option("per-connection-delay", INTEGER, "<milliseconds>"),
    Option("priority", INTEGER, "<priority>"),
    Option("property", TEXTS, "<name>=<value>"),
    Option("queues", TEXT, "<pattern>"),
    Option("rate", INTEGER, "<number>"),
    Option("remove-header", TEXTS, "<name>"),
    Option("resource", TEXT, "queue/<name>|exchange/<name>"),
    Option("routing-key", TEXT, "<key>"),
    Option("set-header", TEXTS, "<name>=<value>"),
    Option("since", TEXT, "<time>"),
    Option("skipped", TEXT, "<file>"),
    Option("table-headers", line="[--no-table-headers]"),
    Option("tags", TEXT, "<tags>"),
    Option("to", TEXT, "<place>"),
    Option("type", TEXT, "classic|quorum|stream", shown="--type <type>"),
    Option("unit", TEXT, "<unit>"),
    Option("until", TEXT, "<time>"),
    Option("user", TEXT, "<username>"),
    Option("via", TEXT, "queue|exchange"),
    Option("within", PERIOD, "<duration>"),
)
GENERAL_OPTIONS: Final = {each.name: each for each in _GENERAL}
OPTIONS: Final = GENERAL_OPTIONS | {each.name: each for each in _OWN}
SHORT_OPTIONS: Final = {letter: each.name for each in OPTIONS.values() for letter in each.short}


def option(name: str, text: str = "", **changes: Any) -> Option:
    """Return an option with its explanation, and what else is particular to one command."""
    return OPTIONS[name]._replace(text=text, **changes)


VHOST: Final = OPTIONS["vhost"]
TIMEOUT: Final = OPTIONS["timeout"]
HEADERS: Final = OPTIONS["table-headers"]

Value = str | int | bool


class InvalidOption(NamedTuple):
    """Invalid option as typed, with the value if that is invalid."""

    option: str
    value: str


class ParsedOptions(NamedTuple):
    """Parsed command line: words that are not options, values by long name, and invalid options."""

    arguments: list[str]
    options: dict[str, Value]
    invalid: list[InvalidOption]


def scan(argv: list[str], allowed: frozenset[str] | None = None) -> ParsedOptions:
    """Parse a command line.

    Args:
        allowed: long names of the command's options besides the general ones; None allows all options, which
            finds the command itself.
    """
    found = ParsedOptions([], {}, [])
    remaining = list(argv)
    while remaining:
        word = remaining.pop(0)
        if word == "--":
            found.arguments.extend(remaining)
            break
        if word.startswith("--"):
            _long(word, remaining, found, allowed)
        elif word.startswith("-") and len(word) > 1 and not _negative_number(word):
            _short(word, remaining, found, allowed)
        else:
            found.arguments.append(word)
    return found


def _known(name: str | None, allowed: frozenset[str] | None) -> bool:
    return name in GENERAL_OPTIONS or (name in OPTIONS and (allowed is None or name in allowed))


def _long(word: str, remaining: list[str], found: ParsedOptions, allowed: frozenset[str] | None) -> None:
    option, equals, value = word.partition("=")
    name = option[2:]
    if _known(name, allowed):
        _set_option(option, name, value if equals else None, remaining, found)
        return
    opposite = name.removeprefix("no-")
    if opposite != name and _known(opposite, allowed) and OPTIONS[opposite].kind == FLAG:
        if equals:
            found.invalid.append(InvalidOption(option, value))
        else:
            found.options[opposite] = False
        return
    found.invalid.append(InvalidOption(option, ""))
    if name in OPTIONS and OPTIONS[name].kind != FLAG and not equals and _value_follows(remaining):
        remaining.pop(0)


def _short(word: str, remaining: list[str], found: ParsedOptions, allowed: frozenset[str] | None) -> None:
    letters, equals, value = word[1:].partition("=")
    if len(letters) == 1:
        name = SHORT_OPTIONS.get(letters)
        if name is None or not _known(name, allowed):
            found.invalid.append(InvalidOption(f"-{letters}", ""))
        else:
            _set_option(f"-{letters}", name, value if equals else None, remaining, found)
        return
    # Only flags can be combined.
    for letter in letters:
        name = SHORT_OPTIONS.get(letter)
        if name is not None and _known(name, allowed) and OPTIONS[name].kind == FLAG:
            found.options[name] = True
        else:
            found.invalid.append(InvalidOption(f"-{letter}", ""))


def _set_option(option: str, name: str, value: str | None, remaining: list[str], found: ParsedOptions) -> None:
    kind = OPTIONS[name].kind
    if kind == FLAG:
        if value is None or value in ("true", "false"):
            found.options[name] = value != "false"
        else:
            found.invalid.append(InvalidOption(option, value))
        return
    if value is None:
        if not _value_follows(remaining):
            found.invalid.append(InvalidOption(option, ""))
            return
        value = remaining.pop(0)
    if kind == TEXT:
        found.options[name] = value
    elif kind == TEXTS:
        found.options[name] = f"{found.options[name]}\n{value}" if name in found.options else value
    elif kind == PERIOD and _is_integer(value[:-1]) and value[-1] in "smhd":
        found.options[name] = value
    elif _is_integer(value):
        found.options[name] = int(value)
    else:
        found.invalid.append(InvalidOption(option, value))


def _value_follows(remaining: list[str]) -> bool:
    return bool(remaining) and (
        remaining[0] == "-" or not remaining[0].startswith("-") or _negative_number(remaining[0])
    )


def _is_integer(text: str) -> bool:
    return text.lstrip("+-").isascii() and text.lstrip("+-").isdigit() and len(text) - len(text.lstrip("+-")) <= 1


def _negative_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return word.startswith("-") and word[1:2].isdigit()


URL_VARIABLE: Final = "LEVERET_URL"
CA_VARIABLE: Final = "LEVERET_CACERT"
DEFAULT_URL: Final = "http://guest:guest@127.0.0.1:15672"
DEFAULT_PORT: Final = 15672
_EXPECTED: Final = "--url or LEVERET_URL should be http://user:password@host:port"


class Address(NamedTuple):
    """Address of the HTTP API, with the login.

    Args:
        prefix: path before `/api`, without a trailing slash.
        ca_file: PEM file of the authorities whose certificates are trusted; empty for those of the system.
    """

    scheme: str
    host: str
    port: int
    prefix: str
    user: str
    password: str
    ca_file: str = ""

    def __str__(self) -> str:
        """Return host and port. Messages use them as long as the node's name is unknown."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def find_address(options: Mapping[str, object], environment: Mapping[str, str]) -> Address:
    """Return the address that the options of a command line or the environment name.

    Raises:
        ValueError: the URL is invalid.
    """
    url = options.get("url") or environment.get(URL_VARIABLE) or DEFAULT_URL
    ca_file = options.get("cacert") or environment.get(CA_VARIABLE) or ""
    return parse_address(str(url))._replace(ca_file=str(ca_file))


def parse_address(url: str) -> Address:
    """Parse `http://user:password@host:port/prefix`. Missing parts get RabbitMQ's defaults.

    Raises:
        ValueError: the URL is invalid.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{error}: {_EXPECTED}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        # The message leaves out the URL because it may contain a password.
        raise ValueError(f"not an HTTP URL: {_EXPECTED}")
    return Address(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or (DEFAULT_PORT if parts.scheme == "http" else DEFAULT_PORT - 1),
        prefix=quote(parts.path.rstrip("/").removesuffix("/api"), safe="/%"),
        user=unquote(parts.username or "guest"),
        password=unquote("guest" if parts.password is None else parts.password),
    )

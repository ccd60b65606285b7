"""Options of all commands, and the parser that finds them anywhere on the command line.

Parsing follows rabbitmqctl: long options take their value from the next argument or after `=`, flags have a `--no-`
form, short flags may be combined, negative numbers are values, `--` ends the options.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FLAG: Final = "flag"
TEXT: Final = "text"
INTEGER: Final = "integer"
# A number, which may have a unit: 24h.
PERIOD: Final = "period"

# Options of every command. Node and cookie options have no effect, but existing scripts pass them.
GENERAL_OPTIONS: Final = {
    "cacert": TEXT,
    "dry-run": FLAG,
    "erlang-cookie": TEXT,
    "formatter": TEXT,
    "help": FLAG,
    "longnames": FLAG,
    "node": TEXT,
    "print-stacktrace": FLAG,
    "quiet": FLAG,
    "silent": FLAG,
    "timeout": INTEGER,
    "url": TEXT,
    "vhost": TEXT,
}
# Options of some commands; an option has the same type in all of them.
COMMAND_OPTIONS: Final = {
    "ack": FLAG,
    "age": INTEGER,
    "all": FLAG,
    "apply-to": TEXT,
    "argument": TEXT,
    "auto-delete": FLAG,
    "by-source": FLAG,
    "count": INTEGER,
    "death": TEXT,
    "default-queue-type": TEXT,
    "description": TEXT,
    "exchange": TEXT,
    "filter": TEXT,
    "for": TEXT,
    "detach": FLAG,
    "format": TEXT,
    "from": TEXT,
    "global": FLAG,
    "header": TEXT,
    "if-empty": FLAG,
    "if-unused": FLAG,
    "internal": FLAG,
    "into-exchange": TEXT,
    "into-queue": TEXT,
    "keys": TEXT,
    "limit": INTEGER,
    "list-commands": FLAG,
    "local": FLAG,
    "match": TEXT,
    "max-lost": INTEGER,
    "max-messages": INTEGER,
    "max-oldest": TEXT,
    "offline": FLAG,
    "online": FLAG,
    "per-connection-delay": INTEGER,
    "priority": INTEGER,
    "property": TEXT,
    "rate": INTEGER,
    "remove-death": FLAG,
    "remove-header": TEXT,
    "set-header": TEXT,
    "skip-if-unchanged": FLAG,
    "skipped": TEXT,
    "table-headers": FLAG,
    "tags": TEXT,
    "to": TEXT,
    "to-exchange": FLAG,
    "transient": FLAG,
    "type": TEXT,
    "unit": TEXT,
    "user": TEXT,
    "via": TEXT,
    "within": PERIOD,
}
# Options whose values add up, one per line.
ADDED_UP: Final = ("argument", "filter", "header", "property", "remove-header", "set-header")
OPTION_TYPES: Final = GENERAL_OPTIONS | COMMAND_OPTIONS
SHORT_OPTIONS: Final = {
    "?": "help",
    "a": "all",
    "e": "if-empty",
    "h": "help",
    "l": "longnames",
    "n": "node",
    "p": "vhost",
    "q": "quiet",
    "s": "silent",
    "t": "timeout",
    "u": "if-unused",
}

Value = str | int | bool


class InvalidOption(NamedTuple):
    """Invalid option on the command line.

    Args:
        option: the option as typed.
        value: the value if it is invalid, otherwise empty.
    """

    option: str
    value: str


class ParsedOptions(NamedTuple):
    """Parsed command line.

    Args:
        arguments: words that are not options, in order.
        options: values by long name.
        invalid: invalid options, in order.
    """

    arguments: list[str]
    options: dict[str, Value]
    invalid: list[InvalidOption]


def scan(argv: list[str], allowed: frozenset[str] | None = None) -> ParsedOptions:
    """Parse a command line.

    Args:
        argv: arguments without the program's name.
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
    return name in GENERAL_OPTIONS or (name in COMMAND_OPTIONS and (allowed is None or name in allowed))


def _long(word: str, remaining: list[str], found: ParsedOptions, allowed: frozenset[str] | None) -> None:
    option, equals, value = word.partition("=")
    name = option[2:]
    if _known(name, allowed):
        _set_option(option, name, value if equals else None, remaining, found)
        return
    opposite = name.removeprefix("no-")
    if opposite != name and _known(opposite, allowed) and OPTION_TYPES[opposite] == FLAG:
        if equals:
            found.invalid.append(InvalidOption(option, value))
        else:
            found.options[opposite] = False
        return
    found.invalid.append(InvalidOption(option, ""))
    if name in OPTION_TYPES and OPTION_TYPES[name] != FLAG and not equals and _value_follows(remaining):
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
        if name is not None and _known(name, allowed) and OPTION_TYPES[name] == FLAG:
            found.options[name] = True
        else:
            found.invalid.append(InvalidOption(f"-{letter}", ""))


def _set_option(option: str, name: str, value: str | None, remaining: list[str], found: ParsedOptions) -> None:
    option_type = OPTION_TYPES[name]
    if option_type == FLAG:
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
    if option_type == TEXT:
        # These add up. For other options the last value is used.
        earlier = found.options.get(name) if name in ADDED_UP else None
        found.options[name] = value if earlier is None else f"{earlier}\n{value}"
    elif option_type == PERIOD and _is_integer(value[:-1]) and value[-1] in "smhd":
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

"""The options of all commands, and the scan that finds them anywhere on the command line.

The scan follows that of rabbitmqctl: long options take their value from the next argument or after `=`, flags have a
`--no-` form, short flags may be joined, negative numbers are values, `--` ends the options.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FLAG: Final = "flag"
TEXT: Final = "text"
INTEGER: Final = "integer"

# What every command takes. Node and name options mean nothing to a program that is given a URL, but scripts write them.
GENERAL: Final = {
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
# What some commands take; a name means the same in all of them.
PARTICULAR: Final = {
    "age": INTEGER,
    "all": FLAG,
    "apply-to": TEXT,
    "by-source": FLAG,
    "default-queue-type": TEXT,
    "description": TEXT,
    "filter": TEXT,
    "for": TEXT,
    "format": TEXT,
    "global": FLAG,
    "if-empty": FLAG,
    "if-unused": FLAG,
    "limit": INTEGER,
    "list-commands": FLAG,
    "local": FLAG,
    "offline": FLAG,
    "online": FLAG,
    "per-connection-delay": INTEGER,
    "priority": INTEGER,
    "skip-if-unchanged": FLAG,
    "table-headers": FLAG,
    "tags": TEXT,
    "unit": TEXT,
    "user": TEXT,
    "within": INTEGER,
}
KINDS: Final = GENERAL | PARTICULAR
SHORT: Final = {
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


class Invalid(NamedTuple):
    """An option that cannot be taken.

    Args:
        option: as it was written.
        value: given with it, if that is what is wrong.
    """

    option: str
    value: str


class ParsedOptions(NamedTuple):
    """A command line taken apart.

    Args:
        arguments: words that are not options, in order.
        options: values by long name.
        invalid: what cannot be taken, in order.
    """

    arguments: list[str]
    options: dict[str, Value]
    invalid: list[Invalid]


def scan(argv: list[str], allowed: frozenset[str] | None = None) -> ParsedOptions:
    """Take a command line apart.

    Args:
        argv: without the program's name.
        allowed: long names beside the general ones that the command takes; None: all, to find the command itself.
    """
    found = ParsedOptions([], {}, [])
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            found.arguments.extend(rest)
            break
        if word.startswith("--"):
            _long(word, rest, found, allowed)
        elif word.startswith("-") and len(word) > 1 and not _negative_number(word):
            _short(word, rest, found, allowed)
        else:
            found.arguments.append(word)
    return found


def _known(name: str | None, allowed: frozenset[str] | None) -> bool:
    return name in GENERAL or (name in PARTICULAR and (allowed is None or name in allowed))


def _long(word: str, rest: list[str], found: ParsedOptions, allowed: frozenset[str] | None) -> None:
    option, equals, value = word.partition("=")
    name = option[2:]
    if _known(name, allowed):
        _take(option, name, value if equals else None, rest, found)
        return
    opposite = name.removeprefix("no-")
    if opposite != name and _known(opposite, allowed) and KINDS[opposite] == FLAG:
        if equals:
            found.invalid.append(Invalid(option, value))
        else:
            found.options[opposite] = False
        return
    found.invalid.append(Invalid(option, ""))
    if name in KINDS and KINDS[name] != FLAG and not equals and _value_follows(rest):
        rest.pop(0)


def _short(word: str, rest: list[str], found: ParsedOptions, allowed: frozenset[str] | None) -> None:
    letters, equals, value = word[1:].partition("=")
    if len(letters) == 1:
        name = SHORT.get(letters)
        if name is None or not _known(name, allowed):
            found.invalid.append(Invalid(f"-{letters}", ""))
        else:
            _take(f"-{letters}", name, value if equals else None, rest, found)
        return
    # Joined: flags only.
    for letter in letters:
        name = SHORT.get(letter)
        if name is not None and _known(name, allowed) and KINDS[name] == FLAG:
            found.options[name] = True
        else:
            found.invalid.append(Invalid(f"-{letter}", ""))


def _take(option: str, name: str, value: str | None, rest: list[str], found: ParsedOptions) -> None:
    kind = KINDS[name]
    if kind == FLAG:
        if value is None or value in ("true", "false"):
            found.options[name] = value != "false"
        else:
            found.invalid.append(Invalid(option, value))
        return
    if value is None:
        if not _value_follows(rest):
            found.invalid.append(Invalid(option, ""))
            return
        value = rest.pop(0)
    if kind == TEXT:
        # Conditions add up; of everything else the last one counts.
        earlier = found.options.get(name) if name == "filter" else None
        found.options[name] = value if earlier is None else f"{earlier}\n{value}"
    elif _is_integer(value):
        found.options[name] = int(value)
    else:
        found.invalid.append(Invalid(option, value))


def _value_follows(rest: list[str]) -> bool:
    return bool(rest) and (rest[0] == "-" or not rest[0].startswith("-") or _negative_number(rest[0]))


def _is_integer(text: str) -> bool:
    return text.lstrip("+-").isascii() and text.lstrip("+-").isdigit() and len(text) - len(text.lstrip("+-")) <= 1


def _negative_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return word.startswith("-") and word[1:2].isdigit()

"""Values of options: names and patterns, numbers, places in a stream, older events, how bodies are read."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from leveret.analytics.errors import OptionError
from leveret.analytics.selection import RowLimits
from leveret.analytics.times import parse_time
from leveret.storage.readers.body_rules import FORMS, BodyRule, is_rule_name
from leveret.storage.readers.reader_file import LIST_MAX, is_reader_name, names_in

_WIDEST: Final = RowLimits()
_WILD: Final = frozenset("*?[")
#: What a list, a tuple or a set begins and ends with when it is printed.
_BRACKETS: Final = ("[]", "()", "{}")
_NUMBERS_MAX: Final = (1 << 63) - 1


class ArchiveUse(Enum):
    """Which older events are read from the archive."""

    AUTO = "those that the query asks for by time"
    SINCE = "those since a time, whatever the query asks for"
    OFF = "none"


class ArchiveChoice(NamedTuple):
    """What the option says.

    Attributes:
        use: Which events are read.
        since: With SINCE, the time in microseconds since 1970.
    """

    use: ArchiveUse
    since: int = _WIDEST.first_time

    def older_than(self, oldest: int, limits: RowLimits) -> RowLimits | None:
        """Return the limits for older events; None if none are asked for.

        Args:
            oldest: Since when the broker has events, in microseconds since 1970.
        """
        if self.use is ArchiveUse.OFF:
            return None
        first = max(limits.first_time, self.since)
        # A query without a beginning asks for what the broker has, unless it ends before that.
        is_asked = first > _WIDEST.first_time or self.use is ArchiveUse.SINCE or limits.last_time < oldest
        return limits._replace(first_time=first) if is_asked and first <= oldest else None


AUTO: Final = ArchiveChoice(ArchiveUse.AUTO)
_CHOICES: Final = {"auto": AUTO, "off": ArchiveChoice(ArchiveUse.OFF), "all": ArchiveChoice(ArchiveUse.SINCE)}


def parse_archive(text: str) -> ArchiveChoice:
    """Parse the option.

    Args:
        text: `auto`, `off`, `all`, or a time.
    Raises:
        OptionError: It is something else.
    """
    word = _CHOICES.get(text.strip().lower())
    if word is not None:
        return word
    try:
        return ArchiveChoice(ArchiveUse.SINCE, parse_time(text))
    except OptionError:
        raise OptionError(
            f"option 'archive' is auto, off, all, or a time such as 2026-01-31T12:00:00Z, not '{text[:100]}'"
        ) from None


#: Offsets have at most so many digits.
_DIGITS_MAX: Final = 18
_FORMS: Final = "earliest, latest, an offset such as 1200, or a time such as 2026-01-31T12:00:00Z or @1769860800"


class PlaceKind(Enum):
    """Kind of a place in a stream."""

    EARLIEST = "the first message that is there"
    LATEST = "the end"
    OFFSET = "an offset"
    TIME = "the first message since a time"


class OffsetPlace(NamedTuple):
    """A place in a stream.

    Attributes:
        kind: The kind of place.
        value: The number of the message with an offset, or microseconds since 1970; 0 for the other kinds.
    """

    kind: PlaceKind
    value: int = 0

    @property
    def needs_stream(self) -> bool:
        """Whether only streams have such a place."""
        return self.kind in (PlaceKind.OFFSET, PlaceKind.TIME)


EARLIEST: Final = OffsetPlace(PlaceKind.EARLIEST)
LATEST: Final = OffsetPlace(PlaceKind.LATEST)
_PLACES: Final = {"earliest": EARLIEST, "latest": LATEST}


def parse_place(option: str, text: str) -> OffsetPlace:
    """Parse a place.

    Args:
        text: One of the words, an offset, `@` and seconds since 1970, or a time in ISO 8601.
    Raises:
        OptionError: It has another form.
    """
    word, number = text.strip().lower(), text.strip()
    if word in _PLACES:
        return _PLACES[word]
    if number.isascii() and number.isdigit():
        if len(number) <= _DIGITS_MAX:
            return OffsetPlace(PlaceKind.OFFSET, int(number) + 1)
    elif number[:1] == "@" or not number.lstrip("-+").replace(".", "").isdigit():
        try:
            return OffsetPlace(PlaceKind.TIME, parse_time(number.removeprefix("@")))
        except OptionError:
            pass
    raise OptionError(f"option '{option}' takes {_FORMS}; not '{text[:100]}'")


def limits_between(start: OffsetPlace, end: OffsetPlace, limits: RowLimits) -> RowLimits:
    """Return limits that also leave out what is not between two places. The message at the end is not included.

    Raises:
        OptionError: The range begins at the end of a stream, or ends at its beginning.
    """
    if start.kind is PlaceKind.LATEST or end.kind is PlaceKind.EARLIEST:
        raise OptionError("startingOffsets=latest is for streaming queries, endingOffsets=earliest for none")
    first_seq, last_seq, first_time, last_time = limits
    if start.kind is PlaceKind.OFFSET:
        first_seq = max(first_seq, start.value)
    elif start.kind is PlaceKind.TIME:
        first_time = max(first_time, start.value)
    if end.kind is PlaceKind.OFFSET:
        last_seq = min(last_seq, end.value - 1)
    elif end.kind is PlaceKind.TIME:
        last_time = min(last_time, end.value - 1)
    return RowLimits(first_seq, last_seq, first_time, last_time)


#: The options, in lower case.
BODY_OPTIONS: Final = ("bodies", "bodyschema", "bodymessage", "bodysample", "bodyrules")
_SAMPLE: Final = 1000
_SAMPLE_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class BodyOptions:
    """How bodies are read.

    Attributes:
        form: `json`, `avro` or `protobuf`.
        schema: Of JSON, a type in Spark's DDL, empty to infer it; of Avro, a schema in JSON, or the path or URI of a
            file with one; of Protobuf, the path or URI of a file with a descriptor set.
        message: Of Protobuf, the full name of the message.
        sample: Of JSON, from how many messages at most the type is inferred.
        rule: The rule that says all of this; None for options that do.
        named: Name of a rule that has not been looked up yet; empty for none, and then there is no form.
        rules_file: Path or URI of the file that has it; empty for the rules of the data directory or archive.
    """

    form: str
    schema: str = ""
    message: str = ""
    sample: int = _SAMPLE
    rule: BodyRule | None = None
    named: str = ""
    rules_file: str = ""


def parse_body_options(found: Mapping[str, str]) -> BodyOptions | None:
    """Parse the options; return None if bodies are not read.

    Args:
        found: All options of the data source, their names in lower case.
    Raises:
        OptionError: An option is invalid or missing.
    """
    form = found.get("bodies", "").lower()
    if not form:
        for name in BODY_OPTIONS:
            if found.get(name):
                raise OptionError(f"option '{name}' needs the option bodies: {' or '.join(FORMS)}, or a rule's name")
        return None
    if form not in FORMS:
        if not is_rule_name(form):
            raise OptionError(
                f"option 'bodies' must be one of {', '.join(FORMS)}, or the name of a rule, not '{form[:100]}'"
            )
        for name in ("bodyschema", "bodymessage"):
            if found.get(name):
                raise OptionError(f"option '{name}' does not apply to bodies={form}, which is the name of a rule")
        return BodyOptions("", named=form, rules_file=found.get("bodyrules", ""))
    if found.get("bodyrules"):
        raise OptionError("option 'bodyrules' needs the name of one of the rules: bodies=NAME")
    schema, message = found.get("bodyschema", ""), found.get("bodymessage", "")
    if form == "avro" and not schema:
        raise OptionError("bodies=avro needs the option bodySchema: the path of the schema, or its text")
    if form == "protobuf" and not (schema and message):
        raise OptionError(
            "bodies=protobuf needs the options bodySchema, the path of what protoc --include_imports "
            "--descriptor_set_out has written, and bodyMessage, the full name of the message"
        )
    if message and form != "protobuf":
        raise OptionError("option 'bodyMessage' is for bodies=protobuf")
    return BodyOptions(form, schema, message, _sample(found.get("bodysample", str(_SAMPLE))))


def _sample(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _SAMPLE_MAX:
        raise OptionError(f"option 'bodySample' must be an integer from 1 to {_SAMPLE_MAX}, not '{text[:20]}'")
    return int(text)


def is_plain(name: str) -> bool:
    """Return whether a name is no pattern."""
    return _WILD.isdisjoint(name)


def names_text(names: Sequence[str]) -> str:
    """Return names and patterns as the value of the option `vhost` or `queue`."""
    return names[0] if len(names) == 1 else json.dumps(list(names), ensure_ascii=False)


def parse_names(name: str, text: str) -> str:
    """Return the names in an option: as they are, or as a list in JSON, if it is a list as Python or JSON prints it."""
    if len(text) > LIST_MAX:
        raise OptionError(f"option '{name}' has more than {LIST_MAX} characters; use a pattern")
    if text[:1] + text[-1:] not in _BRACKETS or len(names_in(text)) > 1:
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        # It is a name or a pattern.
        return text
    if isinstance(value, list | tuple | set) and value and all(isinstance(each, str) for each in value):
        return names_text(sorted(value) if isinstance(value, set) else list(value))
    if isinstance(value, list) and not value:
        raise OptionError(f"option '{name}' has an empty list; name at least one, or leave it out for all")
    return text


def check_reader_name(name: str) -> str:
    """Return the name of a reader, which may be empty.

    Raises:
        OptionError: No reader can be called so.
    """
    if name and not is_reader_name(name):
        raise OptionError(
            "option 'reader' takes 1 to 64 letters, digits and _.- that begin with a letter or digit, not "
            f"'{name[:100]}'"
        )
    return name


def number(least: int) -> Callable[[str, str], int]:
    """Return what parses an option that is a whole number; what is too large becomes the largest one."""

    def parse(name: str, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise OptionError(f"option '{name}' must be an integer of at least {least}, not '{text}'")
        return min(value, _NUMBERS_MAX)

    return parse


def choice(chosen: str, *choices: str) -> Callable[[str, str], bool]:
    """Return what parses an option that is one of some words: whether it is the one that is chosen."""

    def parse(name: str, text: str) -> bool:
        if text.lower() not in choices:
            raise OptionError(f"option '{name}' must be one of {', '.join(choices)}, not '{text.lower()}'")
        return text.lower() == chosen

    return parse

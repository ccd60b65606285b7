"""The options of the data source as arguments of Python functions."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

import pyarrow as pa

from leveret.analytics.columns import BODY_TABLES, TABLES, VALUE_COLUMNS
from leveret.analytics.data_files import local_path
from leveret.analytics.errors import OptionError
from leveret.analytics.option_values import (
    AUTO,
    BODY_OPTIONS,
    EARLIEST,
    LATEST,
    ArchiveChoice,
    BodyOptions,
    OffsetPlace,
    limits_between,
    parse_archive,
    parse_body_options,
    parse_place,
)
from leveret.analytics.selection import RowLimits
from leveret.analytics.times import parse_time
from leveret.storage.readers.reader_file import LIST_MAX, is_reader_name, matches, names_in
from leveret.storage.snapshots.lease import TIMEOUT
from leveret.storage.url_secrets import mask_url

_WILD: Final = frozenset("*?[")
#: What a list, a tuple or a set begins and ends with when it is printed.
_BRACKETS: Final = ("[]", "()", "{}")
_OPTIONS: Final = (
    "path",
    "table",
    "vhost",
    "queue",
    "asof",
    "mode",
    "segmentsperpartition",
    "maxrecordspertrigger",
    "startingoffsets",
    "endingoffsets",
    "leaseseconds",
    "failondataloss",
    "since",
    "until",
    "firstseq",
    "lastseq",
    "limit",
    "pushdown",
    "snapshot",
    "reader",
    "archive",
    *BODY_OPTIONS,
)
#: Tables to which an option applies, for options that do not apply to all.
_LIMITED: Final = {
    "queue": ("messages", "events", "segments", "queues"),
    "since": ("messages", "events"),
    "until": ("messages", "events"),
    "firstseq": ("messages",),
    "lastseq": ("messages",),
    "startingoffsets": ("messages", "events"),
    "endingoffsets": ("messages",),
    "reader": ("messages",),
    "archive": ("events",),
    **dict.fromkeys(BODY_OPTIONS, BODY_TABLES),
}
_NUMBERS_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Options:
    """Parsed options of the data source.

    Attributes:
        path: Path or URI of the data directory.
        table: Name of the table.
        vhost: Virtual host: its name, a pattern with `*`, `?` and `[…]`, or a list of these as JSON; None for all.
        queue: Name of the queue, or such a pattern or list; None for all.
        as_of: Time to show, in microseconds since 1970; None for the latest.
        fail_fast: Fail at a damaged record instead of skipping and counting it.
        segments_per_partition: Number of full segments that one task reads.
        max_records: Maximum number of records in a batch of a stream; 0 for no limit.
        starting: Where reading starts: of a stream (a queue of that type), or of a streaming query.
        ending: The place after the last message, of a stream.
        fail_on_data_loss: Whether a stream fails if records have been deleted before it has read them.
        limits: Limits on the time of messages and events, and on the sequence numbers of messages; without those of
            `starting` and `ending`.
        pushdown: Whether the query's conditions restrict what is read. Only for data frames used in a single query:
            Spark up to 4.3 applies them also to the next query on the same data frame if that has no conditions.
        lease_seconds: Seconds that an unused snapshot is kept; 0 for the default.
        snapshot: Result of Session.snapshot(), for queries that see the same moment; empty for a snapshot per query.
        limit: Maximum number of rows; None for all.
        reader: Name of the reader of a streaming query: the broker keeps what it has not read; empty for none.
        bodies: How bodies are read into the column `value`; None if there is no such column.
        archive: Which events that the broker does not keep any more are read from its archive.
    """

    path: str
    table: str = "messages"
    vhost: str | None = None
    queue: str | None = None
    as_of: int | None = None
    fail_fast: bool = False
    segments_per_partition: int = 4
    max_records: int = 0
    starting: OffsetPlace = EARLIEST
    ending: OffsetPlace = LATEST
    lease_seconds: float = 0.0
    fail_on_data_loss: bool = True
    limits: RowLimits = RowLimits()  # noqa: RUF009  It cannot be changed.
    pushdown: bool = False
    snapshot: str = ""
    limit: int | None = None
    reader: str = ""
    bodies: BodyOptions | None = None
    archive: ArchiveChoice = AUTO

    @property
    def shown_path(self) -> str:
        """The path for texts, without the passwords that a URI may have."""
        return mask_url(self.path)

    def wants(self, vhost: str, queue: str) -> bool:
        """Return whether a queue is selected."""
        return matches(vhost, self.vhost) and matches(queue, self.queue)

    @property
    def batch_limits(self) -> RowLimits:
        """All limits of a query that is no streaming query.

        Raises:
            OptionError: It is to start at the end, or to end at the beginning; or it has a reader.
        """
        if self.reader:
            raise OptionError("option 'reader' is for streaming queries (spark.readStream)")
        return limits_between(self.starting, self.ending, self.limits)

    def for_stream(self) -> Options:
        """Check that the options apply to a stream, and return them.

        Raises:
            OptionError: The table cannot be streamed, or an option does not apply to streams.
        """
        if self.table not in ("messages", "events"):
            raise OptionError(f"table {self.table} cannot be read as a stream; messages and events can")
        chosen = (self.as_of, self.limit, self.archive) != (None, None, AUTO) or self.snapshot
        if chosen or self.limits != RowLimits() or self.ending != LATEST:
            raise OptionError(
                "asOf, snapshot, archive, since, until, firstSeq, lastSeq, endingOffsets and limit do not apply to "
                "streaming queries; startingOffsets sets where one starts"
            )
        if self.table == "events" and self.starting.needs_stream:
            raise OptionError("startingOffsets of table events is earliest or latest")
        return self

    def for_archive(self) -> Options:
        """Check that the options apply to an archive, and return them.

        Raises:
            OptionError: One does not.
        """
        if self.as_of is not None or self.snapshot:
            raise OptionError(
                "asOf and snapshot do not apply to archives, which have all that has come; use since and until"
            )
        if self.pushdown:
            raise OptionError(
                "pushdown does not apply to archives; name what to read: vhost, queue, since, until, firstSeq"
            )
        if self.archive != AUTO:
            raise OptionError("the option archive is for data directories; what an archive has is read from it anyway")
        if (self.starting, self.ending) != (EARLIEST, LATEST):
            raise OptionError(
                "startingOffsets and endingOffsets do not apply to archives; use firstSeq, lastSeq, since and until"
            )
        return self

    @property
    def named_queues(self) -> list[str]:
        """The queues that must exist: those that the option names, without patterns."""
        return [] if self.queue is None else [each for each in names_in(self.queue) if is_plain(each)]

    @property
    def described(self) -> str | None:
        """Description of the queue that must exist; None if the options name no single queue."""
        names = () if self.queue is None else names_in(self.queue)
        return self.description_of(names[0]) if len(names) == 1 and is_plain(names[0]) else None

    def description_of(self, queue: str) -> str:
        """Return a queue's name with the virtual host in which it is looked for."""
        if self.vhost is None:
            return f"'{queue}'"
        hosts = " or ".join(f"'{each}'" for each in names_in(self.vhost))
        return f"'{queue}' in virtual host {hosts}"


def parse_options(raw: Mapping[str, str]) -> Options:
    """Parse the options of `spark.read.option()`; names are not case-sensitive.

    Raises:
        OptionError: An option is unknown, invalid or not applicable.
    """
    found = {name.lower(): str(value) for name, value in raw.items()}
    for name in found:
        if name not in _OPTIONS:
            raise OptionError(f"unknown option '{name}'; the options are {', '.join(_OPTIONS)}")
    if not found.get("path"):
        raise OptionError("name the data directory: .load('/var/lib/leveret')")
    table = found.get("table", "messages")
    if table not in TABLES:
        raise OptionError(f"unknown table '{table}'; the tables are {', '.join(TABLES)}")
    for name in sorted(found.keys() & _LIMITED.keys()):
        if not applies(name, table):
            raise OptionError(
                f"option '{name}' does not apply to table {table}, only to {' and '.join(_LIMITED[name])}"
            )
    return Options(
        local_path(found["path"]),
        table,
        _names(found, "vhost"),
        _names(found, "queue"),
        parse_time(found["asof"]) if "asof" in found else None,
        _choice(found, "mode", ("permissive", "failfast")) == "failfast",
        _number(found, "segmentsperpartition", 4, 1),
        _number(found, "maxrecordspertrigger", 0, 0),
        parse_place("startingOffsets", found.get("startingoffsets", "earliest")),
        parse_place("endingOffsets", found.get("endingoffsets", "latest")),
        _number(found, "leaseseconds", int(TIMEOUT), 1) if "leaseseconds" in found else 0.0,
        _choice(found, "failondataloss", ("true", "false")) == "true",
        _limits(found),
        _choice(found, "pushdown", ("false", "true")) == "true",
        found.get("snapshot", ""),
        _number(found, "limit", 0, 0) if "limit" in found else None,
        check_reader_name(found.get("reader", "")),
        parse_body_options(found),
        parse_archive(found.get("archive", "auto")),
    )


def is_plain(name: str) -> bool:
    """Return whether a name is no pattern."""
    return _WILD.isdisjoint(name)


def names_text(names: Sequence[str]) -> str:
    """Return names and patterns as the value of the option `vhost` or `queue`.

    Args:
        names: At least one.
    """
    return names[0] if len(names) == 1 else json.dumps(list(names), ensure_ascii=False)


def _names(found: Mapping[str, str], name: str) -> str | None:
    """Return the names in an option: as they are, or as a list in JSON, if it is a list as Python or JSON prints it."""
    text = found.get(name)
    if text is not None and len(text) > LIST_MAX:
        raise OptionError(f"option '{name}' has more than {LIST_MAX} characters; use a pattern")
    if text is None or text[:1] + text[-1:] not in _BRACKETS or len(names_in(text)) > 1:
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


def applies(name: str, table: str) -> bool:
    """Return whether an option, in lower case, applies to a table."""
    return table in _LIMITED.get(name, TABLES)


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


def _limits(found: Mapping[str, str]) -> RowLimits:
    widest = RowLimits()
    return RowLimits(
        _number(found, "firstseq", widest.first_seq, 0),
        _number(found, "lastseq", widest.last_seq, 0),
        parse_time(found["since"]) if "since" in found else widest.first_time,
        parse_time(found["until"]) if "until" in found else widest.last_time,
    )


def _choice(found: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = found.get(name, choices[0]).lower()
    if value not in choices:
        raise OptionError(f"option '{name}' must be one of {', '.join(choices)}, not '{value}'")
    return value


def _number(found: Mapping[str, str], name: str, default: int, least: int) -> int:
    try:
        value = int(found.get(name, default))
    except ValueError:
        value = least - 1
    if value < least:
        raise OptionError(f"option '{name}' must be an integer of at least {least}, not '{found[name]}'")
    return min(value, _NUMBERS_MAX)


#: A time: ISO 8601 or a datetime, in UTC unless it has a time zone; or seconds since 1970.
Time: TypeAlias = str | int | float | datetime
#: A name, a pattern, or a list of these.
Names: TypeAlias = str | Sequence[str]
#: The schema of bodies: for JSON in Spark's DDL or as an Arrow schema or type; for others a path, or the text.
BodySchema: TypeAlias = "str | os.PathLike[str] | pa.Schema | pa.DataType"
_NAMES: Final = ("vhost", "queue")
_TEXTS: Final = ("mode", "snapshot", "bodies", "body_schema", "body_message")
_NUMBERS: Final = ("first_seq", "last_seq", "limit", "body_sample")


def named_options(path: str | os.PathLike[str], table: str, **given: Time | Names | None) -> dict[str, str]:
    """Return the options of the data source for arguments.

    Args:
        path: The data directory, or the URI of a copy.
        table: Name of the table.
        given: The other options by name, such as `first_seq`; None for those that are not set.
    Raises:
        OptionError: One is of a wrong type.
    """
    named = {name: value for name, value in given.items() if value is not None}
    return {"path": os.fspath(path), "table": table} | {
        name.replace("_", ""): _text(name, value) for name, value in named.items()
    }


def _text(name: str, value: object) -> str:
    """Return an argument as the value of its option.

    Raises:
        OptionError: It is of a type that the option does not take.
    """
    if name in _NAMES:
        if isinstance(value, str):
            return value
        names = list(value) if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping) else []
        if not names or not all(isinstance(each, str) for each in names):
            raise OptionError(f"{name} is a name, a pattern, or a list of these, not {value!r}")
        return names_text(names)
    if name in _TEXTS and not isinstance(value, str):
        raise OptionError(f"{name} is a text, not {value!r}")
    if isinstance(value, bool | bytes) or (isinstance(value, Iterable) and not isinstance(value, str)):
        what = "a whole number" if name in _NUMBERS else "a time, or what else the option takes"
        raise OptionError(f"{name} is {what}, not {value!r}")
    return value.isoformat() if isinstance(value, datetime) else str(value)


def locations_in(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return one path or several as a list.

    Raises:
        OptionError: There are none.
    """
    found = [os.fspath(each) for each in ([path] if isinstance(path, str | os.PathLike) else path)]
    if not found:
        raise OptionError("name an archive or a data directory")
    return found


def chosen_columns(table: str, columns: Sequence[str] | None, types: Mapping[str, str]) -> list[str]:
    """Return the names of the columns to read.

    Args:
        table: Name of a table that exists.
        columns: Names of columns; None for all.
        types: The Spark types of its columns, by name.
    Raises:
        OptionError: There are none, they are not a list, or the table has no such column.
    """
    if isinstance(columns, str):
        raise OptionError(f"columns is a list of names: columns=['{columns}']")
    chosen = list(types) if columns is None else list(columns)
    if not chosen:
        raise OptionError(f"name at least one column of table {table}: {', '.join(types)}")
    for name in chosen:
        if name not in types:
            if name in VALUE_COLUMNS:
                raise OptionError(f"column '{name}' needs bodies='json', 'avro' or 'protobuf', of messages or delayed")
            raise OptionError(f"table {table} has no column '{name}'; its columns are {', '.join(types)}")
    return chosen

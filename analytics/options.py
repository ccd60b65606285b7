"""The options of tables, each declared once: for Spark's data source, Python functions, and the command.

The options that Python functions take are the keys of ScanOptions and ReadOptions. Spark's data source takes those of
SourceOptions, without their underscores; their case does not matter.
"""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias, TypedDict, TypeVar, get_type_hints

from leveret.analytics.columns import BODY_TABLES, TABLES, VALUE_COLUMNS
from leveret.analytics.data_files import local_path
from leveret.analytics.errors import AnalyticsError, OptionError
from leveret.analytics.option_values import (
    AUTO,
    EARLIEST,
    LATEST,
    ArchiveChoice,
    BodyOptions,
    OffsetPlace,
    check_reader_name,
    choice,
    is_plain,
    limits_between,
    names_text,
    number,
    parse_archive,
    parse_body_options,
    parse_names,
    parse_place,
)
from leveret.analytics.selection import RowLimits
from leveret.analytics.times import parse_time
from leveret.storage.readers.reader_file import matches, names_in
from leveret.storage.url_secrets import mask_url

#: A time: ISO 8601 or a datetime, in UTC unless it has a time zone; or seconds since 1970.
Time: TypeAlias = str | int | float | datetime
#: A name, a pattern, or a list of these.
Names: TypeAlias = str | Sequence[str]
if TYPE_CHECKING:
    import pyarrow as pa

    #: The schema of bodies: for JSON in Spark's DDL or as an Arrow schema or type; for others a path, or the text.
    BodySchema: TypeAlias = str | os.PathLike[str] | pa.Schema | pa.DataType
else:
    # Help is there without PyArrow.
    BodySchema = Any
#: What takes options as keyword arguments.
_Function = TypeVar("_Function", bound=Callable[..., Any])
_LINE: Final = 120


class CommandOption(NamedTuple):
    """An option of `leveret-analytics`.

    Attributes:
        help: What it is for.
        job: The only job that has it; empty if all have it.
        more: Further arguments of add_argument().
    """

    help: str
    job: str = ""
    more: Mapping[str, Any] = {}


class Option(NamedTuple):
    """An option of tables.

    Attributes:
        meaning: What it says, for the documentation of Python functions.
        field: The field of Options; empty for what parse_body_options() reads.
        parse: Returns the value for a name and a text; None for the text itself.
        tables: Tables to which it applies; None for all.
        takes: What Python functions take: names, a text, a whole number, or (empty) a time or what else it can be.
        command: The same as an option of the command; None if it has none.
    """

    meaning: str
    field: str = ""
    parse: Callable[[str, str], Any] | None = None
    tables: tuple[str, ...] | None = None
    takes: str = ""
    command: CommandOption | None = None


_MORE: Final = "wildcards * and ? are allowed; repeat it for more than one"
VHOST: Final = Option(
    "Virtual host: its name, a pattern with `*`, `?` and `[…]`, or a list of these; None for all.",
    "vhost",
    parse_names,
    takes="names",
    command=CommandOption(f"virtual host; {_MORE}", more={"action": "append"}),
)
QUEUE: Final = Option(
    "Name of the queue, a pattern, or a list of these; None for all. A name must exist.",
    "queue",
    parse_names,
    ("messages", "events", "segments", "queues"),
    "names",
    CommandOption(f"name of the queue; {_MORE}", more={"action": "append"}),
)
AS_OF: Final = Option(
    "Show the last moment up to this time, as far as the files still have it.",
    "as_of",
    lambda _, text: parse_time(text),
    command=CommandOption("time in the past to show: 2026-01-31T12:00:00Z, or seconds since 1970"),
)
ARCHIVE: Final = Option(
    "Which events that a broker does not keep any more are read from its archive: `auto` (the default) for those that "
    "`since`, `until` or `as_of` asks for, `all`, those since a time, or `off` for none.",
    "archive",
    lambda _, text: parse_archive(text),
    ("events",),
    command=CommandOption(
        "events that the broker does not keep any more, from the archive of its data directory: auto for those that "
        "--as-of and --hours ask for (default), all, those since a time, or off",
        more={"metavar": "WHICH"},
    ),
)


def _time(meaning: str, field: str) -> Option:
    return Option(meaning, field, lambda _, text: parse_time(text), ("messages", "events", "audit"))


def _seq(meaning: str, field: str) -> Option:
    return Option(meaning, field, number(0), ("messages",), "a whole number")


def _of_bodies(meaning: str, help_text: str, metavar: str) -> Option:
    """Return an option that says how bodies are read, which the job `sql` has."""
    command = CommandOption(help_text, "sql", {"metavar": metavar})
    return Option(meaning, tables=BODY_TABLES, takes="a text", command=command)


class ScanOptions(TypedDict, total=False):
    """What `leveret.scan` and `leveret.dataset` take, and, as all others, Spark's data source."""

    vhost: Annotated[Names | None, VHOST]
    queue: Annotated[Names | None, QUEUE]
    as_of: Annotated[Time | None, AS_OF]
    since: Annotated[
        Time | None, _time("Only messages, events and lines of the audit log of this time or later.", "first_time")
    ]
    until: Annotated[
        Time | None, _time("Only messages, events and lines of the audit log of this time or earlier.", "last_time")
    ]
    first_seq: Annotated[int | None, _seq("Only messages with this number or a higher one.", "first_seq")]
    last_seq: Annotated[int | None, _seq("Only messages with this number or a lower one.", "last_seq")]
    starting_offsets: Annotated[
        Time | None,
        Option(
            "Only messages of a stream from an offset or a time on: `earliest`, a number, ISO 8601 or a datetime, or "
            "`@` and seconds since 1970.",
            "starting",
            lambda _, text: parse_place("startingOffsets", text),
            ("messages", "events"),
        ),
    ]
    ending_offsets: Annotated[
        Time | None,
        Option(
            "Only messages before an offset or a time; `latest` for all.",
            "ending",
            lambda _, text: parse_place("endingOffsets", text),
            ("messages",),
        ),
    ]
    limit: Annotated[int | None, Option("Read at most this many rows.", "limit", number(0), takes="a whole number")]
    mode: Annotated[
        str | None,
        Option(
            "`permissive` skips damaged records and logs a warning, `failfast` makes them an error.",
            "fail_fast",
            choice("failfast", "permissive", "failfast"),
            takes="a text",
        ),
    ]
    bodies: Annotated[
        str | None,
        _of_bodies(
            "`json`, `avro` or `protobuf`, or the name of a rule, whose queues are read unless `queue` names others: "
            "adds the columns `value`, what the body says, and `value_error`, what is wrong with it.",
            "read bodies into the column value, and what is wrong with them into value_error: json, avro, "
            "protobuf, or the name of a rule",
            "FORMAT",
        ),
    ]
    body_schema: Annotated[
        BodySchema | None,
        _of_bodies(
            "For JSON the type of `value`, in Spark's DDL, as an Arrow schema or type, or a JSON schema; None to infer "
            "it. For Avro the path of a schema, or its text. For Protobuf the path of a file with a descriptor set.",
            "for JSON, columns such as 'id bigint, tags array<string>' (default: inferred); for Avro, the path of "
            "a schema; for Protobuf, the path of a descriptor set",
            "SCHEMA",
        ),
    ]
    body_message: Annotated[
        str | None,
        _of_bodies("For Protobuf, the full name of the message.", "for Protobuf, the full name of the message", "NAME"),
    ]
    body_sample: Annotated[
        int | None,
        Option(
            "For JSON, from how many messages at most the type is inferred; 1000 by default.",
            tables=BODY_TABLES,
            takes="a whole number",
        ),
    ]
    body_rules: Annotated[
        str | None,
        _of_bodies(
            "Path of a YAML or JSON file of rules for bodies; None for those of the data directory or archive.",
            "file of rules for bodies (default: those of the data directory or archive)",
            "FILE",
        ),
    ]
    archive: Annotated[Time | None, ARCHIVE]


class ReadOptions(ScanOptions, total=False):
    """What `leveret.analytics.read` takes."""

    snapshot: Annotated[
        str | None,
        Option("Result of Session.snapshot(), for data frames that show the same moment.", "snapshot", takes="a text"),
    ]


class SourceOptions(ReadOptions, total=False):
    """What Spark's data source takes besides `path` and `table`."""

    segments_per_partition: Annotated[
        int, Option("Number of full segments that one task reads.", "segments_per_partition", number(1))
    ]
    max_records_per_trigger: Annotated[
        int, Option("Maximum number of records in a batch of a stream; 0 for no limit.", "max_records", number(0))
    ]
    lease_seconds: Annotated[int, Option("Seconds that an unused snapshot is kept.", "lease_seconds", number(1))]
    fail_on_data_loss: Annotated[
        bool,
        Option(
            "Whether a stream fails if records have been deleted before it has read them.",
            "fail_on_data_loss",
            choice("true", "true", "false"),
            command=CommandOption(
                "whether to fail if messages were removed before they could be exported (default: true)",
                "export",
                {"choices": ("true", "false")},
            ),
        ),
    ]
    # Only for data frames used in a single query: Spark up to 4.3 applies the conditions also to the next query on the
    # same data frame if that has none.
    pushdown: Annotated[
        bool,
        Option("Whether the query's conditions restrict what is read.", "pushdown", choice("true", "false", "true")),
    ]
    reader: Annotated[
        str,
        Option(
            "Name of the reader of a streaming query: the broker keeps what it has not read; empty for none.",
            "reader",
            lambda _, text: check_reader_name(text),
            ("messages",),
            command=CommandOption(
                "keep messages in the broker's files until NAME has exported them", "export", {"metavar": "NAME"}
            ),
        ),
    ]


def _declared(kind: type) -> dict[str, Option]:
    return {name: hint.__metadata__[0] for name, hint in get_type_hints(kind, include_extras=True).items()}


#: All options by name, with underscores.
OPTIONS: Final[Mapping[str, Option]] = _declared(SourceOptions)
_BY_NAME: Final = {name.replace("_", ""): each for name, each in OPTIONS.items()}
_NAMES: Final = ("path", "table", *_BY_NAME)


@dataclass(frozen=True, slots=True)
class Options:
    """Parsed options of the data source; what each means is said where it is declared.

    Attributes:
        vhost, queue: A name, a pattern, or a list of these as JSON; None for all.
        as_of: In microseconds since 1970; None for the latest.
        fail_fast: The option `mode`.
        max_records: Maximum number of records in a batch of a stream; 0 for no limit.
        limits: Those of `since`, `until`, `firstSeq` and `lastSeq`; without those of `starting` and `ending`.
        lease_seconds: 0 for the default.
        bodies: How bodies are read into the column `value`; None if there is no such column.
        queues_of_rule: Whether `queue` is that of a rule for bodies: such a queue need not exist.
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
    queues_of_rule: bool = False

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
        if "://" in self.path:
            raise AnalyticsError("streams need a data directory on a local or mounted file system")
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
        return (
            []
            if self.queue is None or self.queues_of_rule
            else [each for each in names_in(self.queue) if is_plain(each)]
        )

    @property
    def described(self) -> str | None:
        """Description of the queue that must exist; None if the options name no single queue."""
        names = () if self.queue is None or self.queues_of_rule else names_in(self.queue)
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
        if name not in _NAMES:
            raise OptionError(f"unknown option '{name}'; the options are {', '.join(_NAMES)}")
    if not found.get("path"):
        raise OptionError("name the data directory: .load('/var/lib/leveret')")
    table = found.get("table", "messages")
    if table not in TABLES:
        raise OptionError(f"unknown table '{table}'; the tables are {', '.join(TABLES)}")
    for name in sorted(found.keys() & _BY_NAME.keys()):
        if not applies(name, table):
            tables = " and ".join(_BY_NAME[name].tables or ())
            raise OptionError(f"option '{name}' does not apply to table {table}, only to {tables}")
    values: dict[str, Any] = {
        each.field: found[name] if each.parse is None else each.parse(name, found[name])
        for name, each in _BY_NAME.items()
        if each.field and name in found
    }
    limits = RowLimits(**{name: values.pop(name) for name in RowLimits._fields if name in values})
    return Options(local_path(found["path"]), table, limits=limits, bodies=parse_body_options(found), **values)


def applies(name: str, table: str) -> bool:
    """Return whether an option, in lower case without underscores, applies to a table."""
    option = _BY_NAME.get(name)
    return option is None or option.tables is None or table in option.tables


def command_options(job: str = "") -> dict[str, CommandOption]:
    """Return the options of tables that the command has by name: those of all jobs, or of a single one."""
    return {
        name: each.command for name, each in OPTIONS.items() if each.command is not None and each.command.job == job
    }


def named_options(path: str | os.PathLike[str], table: str, given: Mapping[str, object]) -> dict[str, str]:
    """Return the options of the data source for arguments of a Python function.

    Args:
        given: The other options by name, such as `first_seq`; None for those that are not set.
    Raises:
        OptionError: One is of a wrong type.
    """
    named = {name.replace("_", ""): _text(name, value) for name, value in given.items() if value is not None}
    return {"path": os.fspath(path), "table": table} | named


def _text(name: str, value: object) -> str:
    """Return an argument as the value of its option."""
    takes = OPTIONS[name].takes if name in OPTIONS else ""
    if takes == "names":
        if isinstance(value, str):
            return value
        names = list(value) if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping) else []
        if not names or not all(isinstance(each, str) for each in names):
            raise OptionError(f"{name} is a name, a pattern, or a list of these, not {value!r}")
        return names_text(names)
    if takes == "a text" and not isinstance(value, str):
        raise OptionError(f"{name} is a text, not {value!r}")
    if isinstance(value, bool | bytes) or (isinstance(value, Iterable) and not isinstance(value, str)):
        raise OptionError(f"{name} is {takes or 'a time, or what else the option takes'}, not {value!r}")
    return value.isoformat() if isinstance(value, datetime) else str(value)


def takes_options(kind: type) -> Callable[[_Function], _Function]:
    """Add options to the signature and the docstring of a function that takes them as its last arguments."""
    declared = _declared(kind)
    # Without what Annotated adds to the type.
    types = {
        name: hint.__forward_arg__.partition("[")[2].rpartition(" | None,")[0]
        for name, hint in kind.__annotations__.items()
    }

    def add(function: _Function) -> _Function:
        signature = inspect.signature(function)
        *known, rest = signature.parameters.values()
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=f"{types[name]} | None")
            for name in declared
        ]
        function.__signature__ = signature.replace(parameters=[*known, *added])  # type: ignore[attr-defined]
        lines = [
            textwrap.fill(f"{name}: {each.meaning}", _LINE, initial_indent=" " * 8, subsequent_indent=" " * 12)
            for name, each in declared.items()
        ]
        text = function.__doc__ or ""
        function.__doc__ = text.replace(f"        {rest.name}: See {kind.__name__}.", "\n".join(lines))
        return function

    return add


def refuse_unknown(function: str, given: Mapping[str, object], kind: type) -> None:
    """Refuse keyword arguments that a function does not have.

    Raises:
        TypeError: There are some.
    """
    for name in given:
        if name not in kind.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'")


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
        columns: Names of columns; None for all.
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
                raise OptionError(
                    f"column '{name}' needs bodies='json', 'avro', 'protobuf' or the name of a rule, of messages or "
                    "delayed"
                )
            raise OptionError(f"table {table} has no column '{name}'; its columns are {', '.join(types)}")
    return chosen

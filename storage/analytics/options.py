"""The options of the data source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Final

from leveret.storage.analytics.columns import TABLES
from leveret.storage.analytics.errors import OptionError
from leveret.storage.analytics.record_rows import RowLimits
from leveret.storage.snapshots.lease import TIMEOUT

_WILD: Final = frozenset("*?[")
_NAMES: Final = (
    "path",
    "table",
    "vhost",
    "queue",
    "asof",
    "mode",
    "segmentsperpartition",
    "maxrecordspertrigger",
    "startingoffsets",
    "leaseseconds",
    "failondataloss",
    "since",
    "until",
    "firstseq",
    "lastseq",
    "pushdown",
    "snapshot",
)
#: Options that have a meaning for some tables only.
_LIMITED: Final = {
    "since": ("messages", "events"),
    "until": ("messages", "events"),
    "firstseq": ("messages",),
    "lastseq": ("messages",),
}
_NUMBERS_MAX: Final = (1 << 63) - 1
#: The year 10000.
_SECONDS_MAX: Final = 253_402_300_800
#: Seconds that the segments of a stream's last batch are kept when its query is not running.
STREAM_TIMEOUT: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for.

    Attributes:
        path: The data directory, or its URI.
        table: One of the tables.
        vhost: Virtual host: its name, or a pattern in which `*`, `?` and `[…]` stand for anything; None for all.
        queue: Name of the queue, likewise.
        as_of: Microseconds since 1970; None for the latest moment there is.
        fail_fast: Fail at a damaged record instead of counting it.
        segments_per_partition: How many segments one task reads, if they are large.
        max_records: How many records a batch of a stream has at most; 0 for any number.
        latest: Whether a stream begins with what comes after its start.
        fail_on_data_loss: Whether a stream fails where what it has to read is gone.
        limits: Only messages that came, and events that happened, within these times; only messages of these numbers.
        pushdown: Whether conditions of the query decide what is read. Only for data frames that are used for one query:
            Spark up to 4.3 plans a data frame's next query without conditions as it has planned the last one with them.
        lease_seconds: How long a snapshot is kept when nobody reads it.
        snapshot: What Session.snapshot() returned, for queries that are to see the same moment; empty for a moment of
            the query's own.
    """

    path: str
    table: str = "messages"
    vhost: str | None = None
    queue: str | None = None
    as_of: int | None = None
    fail_fast: bool = False
    segments_per_partition: int = 4
    max_records: int = 0
    latest: bool = False
    lease_seconds: float = 0.0
    fail_on_data_loss: bool = True
    limits: RowLimits = RowLimits()  # noqa: RUF009  It cannot be changed.
    pushdown: bool = False
    snapshot: str = ""

    def wants(self, vhost: str, queue: str) -> bool:
        """Tell whether a queue is asked for."""
        return _fits(vhost, self.vhost) and _fits(queue, self.queue)

    def for_stream(self) -> Options:
        """The same, once it is clear that all of it has a meaning for a stream.

        Raises:
            OptionError: The table does not grow, or an option has no meaning for a stream.
        """
        if self.table not in ("messages", "events"):
            raise OptionError(f"table {self.table} is not a stream; messages and events are")
        if self.as_of is not None or self.snapshot or self.limits != RowLimits():
            raise OptionError(
                "asOf, snapshot, since, until, firstSeq and lastSeq have no meaning for a stream, which reads what "
                "comes; startingOffsets says where it begins"
            )
        return self

    @property
    def described(self) -> str | None:
        """The queue that has to be there; None if there need be none."""
        if self.queue is None or not _WILD.isdisjoint(self.queue):
            return None
        return f"'{self.queue}'" + (f" in virtual host '{self.vhost}'" if self.vhost is not None else "")


def parse_options(given: Mapping[str, str]) -> Options:
    """Read what was given to `spark.read.option()`; names are not case-sensitive.

    Raises:
        OptionError: An option has no meaning.
    """
    found = {name.lower(): str(value) for name, value in given.items()}
    for name in found:
        if name not in _NAMES:
            raise OptionError(f"there is no option '{name}'; there are {', '.join(_NAMES)}")
    if not found.get("path"):
        raise OptionError("name the data directory: .load('/var/lib/leveret')")
    table = found.get("table", "messages")
    if table not in TABLES:
        raise OptionError(f"there is no table '{table}'; there are {', '.join(TABLES)}")
    for name in sorted(found.keys() & _LIMITED.keys()):
        if table not in _LIMITED[name]:
            raise OptionError(
                f"option '{name}' has no meaning for table {table}; it has for {', '.join(_LIMITED[name])}"
            )
    return Options(
        _local_path(found["path"]),
        table,
        found.get("vhost"),
        found.get("queue"),
        parse_time(found["asof"]) if "asof" in found else None,
        _choice(found, "mode", ("permissive", "failfast")) == "failfast",
        _number(found, "segmentsperpartition", 4, 1),
        _number(found, "maxrecordspertrigger", 0, 0),
        _choice(found, "startingoffsets", ("earliest", "latest")) == "latest",
        _number(found, "leaseseconds", int(TIMEOUT), 1) if "leaseseconds" in found else 0.0,
        _choice(found, "failondataloss", ("true", "false")) == "true",
        _limits(found),
        _choice(found, "pushdown", ("false", "true")) == "true",
        found.get("snapshot", ""),
    )


def parse_time(text: str) -> int:
    """A time as text, in microseconds since 1970.

    Args:
        text: As in ISO 8601, in UTC if it does not say otherwise; or seconds since 1970.
    Raises:
        OptionError: It is neither.
    """
    try:
        # A float would lose microseconds.
        seconds = Decimal(text)
    except InvalidOperation:
        seconds = Decimal("NaN")
    if seconds.is_finite() and -_SECONDS_MAX < seconds < _SECONDS_MAX:
        return int(seconds * 1_000_000)
    try:
        return microseconds(datetime.fromisoformat(text.strip()))
    except ValueError:
        raise OptionError(f"'{text}' is not a time; write 2026-01-31T12:00:00Z, or seconds since 1970") from None


def microseconds(moment: datetime) -> int:
    """A time in microseconds since 1970; UTC if it does not say otherwise."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _fits(name: str, wanted: str | None) -> bool:
    """Whether a name is the one that is wanted, or fits a pattern; names may look like patterns."""
    return wanted is None or name == wanted or fnmatchcase(name, wanted)


def _limits(found: Mapping[str, str]) -> RowLimits:
    widest = RowLimits()
    return RowLimits(
        _number(found, "firstseq", widest.first_seq, 0),
        _number(found, "lastseq", widest.last_seq, 0),
        parse_time(found["since"]) if "since" in found else widest.first_time,
        parse_time(found["until"]) if "until" in found else widest.last_time,
    )


def _local_path(path: str) -> str:
    return path.removeprefix("file://") if path.startswith("file:///") else path


def _choice(found: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = found.get(name, choices[0]).lower()
    if value not in choices:
        raise OptionError(f"option '{name}' is one of {', '.join(choices)}, not '{value}'")
    return value


def _number(found: Mapping[str, str], name: str, default: int, least: int) -> int:
    try:
        value = int(found.get(name, default))
    except ValueError:
        value = least - 1
    if value < least:
        raise OptionError(f"option '{name}' is a whole number from {least} on, not '{found[name]}'")
    return min(value, _NUMBERS_MAX)

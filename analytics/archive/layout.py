"""Names of the files in an archive.

    archive.json                                     says that this is an archive, and its format
    manifests/STORE/000000000012.json                what an interval has added; STORE is the ID of a data directory
    messages/date=2026-01-31/BROKER.NUMBER.ID.parquet
    events/date=2026-01-31/BROKER.NUMBER.ID.parquet  NUMBER is that of the manifest, ID a random one
    superseded/messages/date=2026-01-31/...          files that do not belong to the archive any more, for an hour

The date is that of the messages (when they were enqueued) and events, in UTC. Names of queues are in no path: they may
have any characters, and thousands of queues would make thousands of small files. A file has the rows of many queues,
one after the other.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import uuid4

#: Tables that are archived, and the column with the time by which their files are divided.
TIME_COLUMNS: Final = {"messages": "enqueued_at", "events": "at"}
MARKER: Final = "archive.json"
MANIFESTS: Final = "manifests"
SUPERSEDED: Final = "superseded"
#: Files of this ending are being written.
DRAFT: Final = ".tmp"
DAY: Final = 86_400_000_000
_BROKER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_STORE: Final = re.compile(r"[0-9a-f]{32}")
_MANIFEST: Final = re.compile(r"(\d{12})\.json")
_DATA: Final = re.compile(rf"({_BROKER.pattern})\.(\d{{12}})\.([0-9a-f]{{32}})\.parquet(?:{re.escape(DRAFT)})?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The years 1 and 9999: what a date can be.
_DAYS_MIN, _DAYS_MAX = -719_162, 2_932_896


class DataName(NamedTuple):
    """What the name of a data file says.

    Attributes:
        broker: Name of the broker.
        number: Number of the manifest with which it was written.
    """

    broker: str
    number: int


def is_broker_name(name: str) -> bool:
    """Return whether a broker can have a name: 1 to 64 letters, digits and `_.-`, beginning with a letter or digit."""
    return _BROKER.fullmatch(name) is not None


def is_store_id(name: str) -> bool:
    """Return whether a text is the ID of a data directory in hexadecimal digits."""
    return _STORE.fullmatch(name) is not None


def date_of(time: int) -> str:
    """Return the date of a time in UTC, as `2026-01-31`.

    Args:
        time: Microseconds since 1970.
    """
    days = min(max(time // DAY, _DAYS_MIN), _DAYS_MAX)
    return (_EPOCH + timedelta(days=days)).date().isoformat()


def data_path(table: str, date: str, broker: str, number: int) -> str:
    """Return the path in the archive of a new data file; no other file ever has the same.

    Args:
        table: Name of the table.
        date: The date of its rows, as date_of() returns it.
        broker: Name of the broker.
        number: Number of the manifest that will name it.
    """
    return f"{table}/date={date}/{broker}.{number:012}.{uuid4().hex}.parquet"


def superseded_path(path: str) -> str:
    """Return where a data file is when it does not belong to the archive any more: no glob of a table finds it."""
    return f"{SUPERSEDED}/{path}"


def parse_data_name(path: str) -> DataName | None:
    """Return what the name of a data file says; None for other files.

    Args:
        path: Its path, or only its name.
    """
    found = _DATA.fullmatch(path.rpartition("/")[2])
    return DataName(found[1], int(found[2])) if found is not None else None


def parse_data_date(path: str) -> str:
    """Return the date in the path of a data file, as `2026-01-31`."""
    return path.split("/")[1].removeprefix("date=")


def manifest_path(store_id: str, number: int) -> str:
    """Return the path in the archive of a manifest."""
    return f"{MANIFESTS}/{store_id}/{number:012}.json"


def parse_manifest_name(name: str) -> int | None:
    """Return the number of a manifest by its name; None for other files."""
    found = _MANIFEST.fullmatch(name)
    return int(found[1]) if found is not None else None

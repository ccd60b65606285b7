"""Names and paths of the files of an archive, and which archive and data directories are read together."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import uuid4

from leveret.analytics.data_files import absolute_location, local_path, open_files
from leveret.analytics.errors import OptionError

#: Format of archives. The first one has no audit log, and its archivers would forget up to where it has been read.
FORMAT: Final = 2
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
        date: The date of its rows, as date_of() returns it.
    """
    return f"{table}/date={date}/{broker}.{number:012}.{uuid4().hex}.parquet"


def superseded_path(path: str) -> str:
    """Return where a data file is when it does not belong to the archive any more: no glob of a table finds it."""
    return f"{SUPERSEDED}/{path}"


def parse_data_name(path: str) -> DataName | None:
    """Return what the name of a data file says; None for other files."""
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


class Sources(NamedTuple):
    """What is read together.

    Attributes:
        archive: Path or URL of the archive.
        live: Paths of data directories.
    """

    archive: str
    live: tuple[str, ...] = ()


def is_archive(location: str) -> bool:
    """Return whether there is an archive at a path or URL.

    Raises:
        AnalyticsError: Neither PyArrow nor fsspec can open the URL.
    """
    location = local_path(location)
    if "://" not in location:
        return os.path.isfile(f"{location}/{MARKER}")
    files, path = open_files(location)
    return files.read_all(f"{path}/{MARKER}") is not None


def locations_of(options: Mapping[str, str]) -> list[str]:
    """Return the locations that options of Spark's data source name: one path, or several in JSON."""
    several = options.get("paths")
    return [str(each) for each in json.loads(several)] if several else [options.get("path", "")]


def find_sources(locations: Sequence[str]) -> Sources | None:
    """Return the archive and the data directories among some locations; None for a single one that is not an archive.

    Raises:
        OptionError: They are several, and not one of them is an archive, or more than one.
        AnalyticsError: Neither PyArrow nor fsspec can open a URL.
    """
    archives = [each for each in locations if is_archive(each)]
    live = [each for each in locations if each not in archives]
    if len(locations) > 1 and len(archives) != 1:
        raise OptionError(
            "read one data directory at a time (unionByName() puts data frames together): data directories can only be "
            f"read together with one archive, and {len(archives)} of these {len(locations)} are archives"
        )
    if not archives:
        return None
    return Sources(absolute_location(archives[0]), tuple(absolute_location(local_path(each)) for each in live))

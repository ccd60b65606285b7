"""What is read together: an archive, and the data directories whose newest rows it does not have yet."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from leveret.analytics.archive.layout import MARKER
from leveret.analytics.data_files import absolute_location, local_path, open_files
from leveret.analytics.errors import OptionError


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
    return files is not None and files.read_all(f"{path}/{MARKER}") is not None


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

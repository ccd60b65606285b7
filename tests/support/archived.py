"""Archives of data directories with known contents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.manifests import DataFile, read_manifests, store_ids
from leveret.analytics.archiver import Archiver, ArchiverOptions
from tests.spark.directories import DirectoryBuilder


def archiver_options(builder: DirectoryBuilder, **changes: Any) -> ArchiverOptions:
    """Those of the broker `one` with the clock of its data directory, unless they are changed."""
    options = ArchiverOptions(builder.path, "lake", "one", clock=lambda: builder.clock.time)
    return replace(options, **changes)


def archive(builder: DirectoryBuilder, files: ArchiveFiles, **changes: Any) -> list[int]:
    """Copy what is there, and keep the archive up; the numbers of the manifests that added rows."""
    archiver = Archiver(archiver_options(builder, **changes), files)
    numbers = []
    try:
        while True:
            copied = archiver.copy()
            numbers += [copied.number] if copied.number else []
            if copied.is_all:
                archiver.keep_up()
                return numbers
    finally:
        archiver.close()


def data_files(files: ArchiveFiles, table: str) -> list[DataFile]:
    """The files of a table that the manifests of all brokers name."""
    found = [each for store in store_ids(files) for each in read_manifests(files, store).files.values()]
    return [each for each in found if each.table == table]

"""Where a data directory is: on this machine, or on any file system that PyArrow or fsspec knows."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
from pyarrow import fs

from leveret.storage.analytics.errors import AnalyticsError
from leveret.storage.disk.files import DiskFiles


class LocalFiles(DiskFiles):
    """Files of this machine."""

    def read_part(self, path: str, start: int, size: int) -> bytes:
        """Some bytes of a file; fewer where it ends.

        Args:
            path: Which file.
            start: Where to begin, in bytes.
            size: How many.
        Raises:
            FileNotFoundError: There is no such file.
        """
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(size)


class RemoteFiles(LocalFiles):
    """The reading half of a file seam, for copies of data directories elsewhere. Nothing writes there.

    Args:
        system: A file system of PyArrow.
    """

    def __init__(self, system: Any) -> None:
        super().__init__()
        self._system = system

    def read_all(self, path: str) -> bytes | None:
        """The contents of a file; None if there is no such file."""
        try:
            with self._system.open_input_stream(path) as stream:
                found: bytes = stream.read()
                return found
        except FileNotFoundError:
            return None

    def read_part(self, path: str, start: int, size: int) -> bytes:
        """Some bytes of a file; fewer where it ends."""
        with self._system.open_input_file(path) as file:
            length = min(size, file.size() - start)
            found: bytes = file.read_at(length, start) if length > 0 else b""
            return found

    def size(self, path: str) -> int:
        """The length of a file in bytes."""
        found = self._system.get_file_info(path)
        if found.type != fs.FileType.File:
            raise FileNotFoundError(path)
        return int(found.size)

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted; none if there is no such directory."""
        selector = fs.FileSelector(path, allow_not_found=True)
        return sorted(each.base_name for each in self._system.get_file_info(selector))


def absolute(location: str) -> str:
    """A path that does not depend on where a process was started; URIs as they are."""
    return location if "://" in location else os.path.abspath(location)


def open_files(location: str) -> tuple[RemoteFiles | None, str]:
    """Find out how to read a data directory.

    Args:
        location: A path, or a URI.
    Returns:
        How to read it, None for a directory of this machine; and its path there.
    Raises:
        AnalyticsError: Nothing here knows such a URI.
    """
    if "://" not in location:
        return None, location
    try:
        system, path = fs.FileSystem.from_uri(location)
        return RemoteFiles(system), path.rstrip("/")
    except (pa.ArrowException, ValueError) as error:
        refused = error
    try:
        import fsspec

        made, path = fsspec.core.url_to_fs(location)
    except (ImportError, ValueError) as error:
        raise AnalyticsError(f"{location} cannot be reached: {refused}; {error}") from error
    return RemoteFiles(fs.PyFileSystem(fs.FSSpecHandler(made))), str(path).rstrip("/")

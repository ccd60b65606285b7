"""File access to a data directory: local, or on any file system that PyArrow or fsspec supports.

What only file systems elsewhere need is imported late, since it takes long to load.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from leveret.analytics.errors import AnalyticsError
from leveret.storage.disk.files import DiskFiles
from leveret.storage.url_secrets import mask_text, mask_url


class LocalFiles(DiskFiles):
    """Local files."""

    def read_part(self, path: str, start: int, size: int) -> bytes:
        """Return a range of a file; shorter if the file ends earlier.

        Args:
            path: Path of the file.
            start: Offset in bytes.
            size: Length in bytes.
        Raises:
            FileNotFoundError: The file does not exist.
        """
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(size)


class RemoteFiles(LocalFiles):
    """Read-only file access to a copy of a data directory on another file system."""

    def __init__(self, system: Any) -> None:
        super().__init__()
        self._system = system

    def read_all(self, path: str) -> bytes | None:
        """Return the contents of a file; None if it does not exist."""
        return self._read(path, None)

    def read_foreign(self, path: str, limit: int) -> bytes | None:
        """Return the contents of a file that other programs write; None if it does not exist."""
        octets = self._read(path, limit + 1)
        if octets is not None and len(octets) > limit:
            raise OSError(errno.EFBIG, f"it is longer than {limit} bytes", path)
        return octets

    def _read(self, path: str, most: int | None) -> bytes | None:
        try:
            with self._system.open_input_stream(path) as stream:
                found: bytes = stream.read(most)
                return found
        except FileNotFoundError:
            return None

    def read_part(self, path: str, start: int, size: int) -> bytes:
        """Return a range of a file; shorter if the file ends earlier."""
        with self._system.open_input_file(path) as file:
            length = min(size, file.size() - start)
            found: bytes = file.read_at(length, start) if length > 0 else b""
            return found

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        from pyarrow import fs

        found = self._system.get_file_info(path)
        if found.type != fs.FileType.File:
            raise FileNotFoundError(path)
        return int(found.size)

    def list_directory(self, path: str) -> list[str]:
        """Return the sorted names in a directory; an empty list if it does not exist."""
        from pyarrow import fs

        selector = fs.FileSelector(path, allow_not_found=True)
        return sorted(each.base_name for each in self._system.get_file_info(selector))


def local_path(location: str) -> str:
    """Return the path of a local location that may be a URI; others are returned unchanged."""
    return location.removeprefix("file://") if location.startswith("file:///") else location


def absolute_location(location: str) -> str:
    """Return the absolute path of a location; URIs are returned unchanged."""
    return location if "://" in location else os.path.abspath(location)


def open_files(location: str) -> tuple[LocalFiles, str]:
    """Return the files of a data directory, RemoteFiles for those of a URI, and its path there.

    Raises:
        AnalyticsError: Neither PyArrow nor fsspec supports the URI.
    """
    if "://" not in location:
        return LocalFiles(), location
    system, path = file_system(location)
    return RemoteFiles(system), path


def contents_of(location: str) -> bytes:
    """Return what a file has, by its path or URI.

    Raises:
        OSError: It cannot be read.
        AnalyticsError: Neither PyArrow nor fsspec supports the URI.
    """
    files, path = open_files(location)
    if isinstance(files, RemoteFiles):
        found = files.read_all(path)
        if found is None:
            raise FileNotFoundError("no such file")
        return found
    with open(path, "rb") as file:
        return file.read()


def file_system(location: str) -> tuple[Any, str]:
    """Return a PyArrow file system, and the path there.

    Raises:
        AnalyticsError: Neither PyArrow nor fsspec supports the URI.
    """
    import pyarrow as pa
    from pyarrow import fs

    if "://" not in location:
        return fs.LocalFileSystem(), location
    try:
        system, path = fs.FileSystem.from_uri(location)
        return system, path.rstrip("/")
    except (pa.ArrowException, ValueError) as error:
        refused = error
    try:
        import fsspec

        made, path = fsspec.core.url_to_fs(location)
    except (ImportError, ValueError) as error:
        reasons = mask_text(f"{refused}; {error}", location)
        raise AnalyticsError(f"cannot open {mask_url(location)}: {reasons}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(made)), str(path).rstrip("/")

"""Access to the files of an archive, on any file system that fsspec knows.

What a manifest or the marker says is valid as soon as its file exists, so these two are made in one step, and never
replaced: if two processes make the same file, one of them gets an error.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final
from uuid import uuid4

import fsspec
from fsspec.implementations.local import LocalFileSystem

from leveret.analytics.archive.layout import DRAFT, FORMAT, MARKER
from leveret.analytics.errors import ArchiveError
from leveret.storage.url_secrets import mask_text, mask_url

#: Stores of objects, whose files appear as a whole. On others a file is renamed when it has been written.
_OBJECT_STORES: Final = frozenset(
    {"abfs", "abfss", "adl", "az", "gcs", "gs", "memory", "oci", "ocis", "oss", "s3", "s3a"}
)
#: Octets that are synced at once: what a broker syncs on the same disk meanwhile waits for them.
_SYNCED_BYTES: Final = 1 << 20
#: Errors of file systems that cannot make hard links.
_WITHOUT_LINKS: Final = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)


class ArchiveFiles:
    """Reads and writes files of one archive; paths are relative to it.

    Args:
        url: A path, or a URL such as `s3://bucket/archive`.
    Attributes:
        url: The path or URL, with the passwords that it has.
        shown: The path or URL for error texts, without them.
    Raises:
        ArchiveError: fsspec cannot open the URL.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/") or "/"
        self.shown = mask_url(self.url)
        with self.errors(""):
            self._system, root = fsspec.core.url_to_fs(os.path.abspath(url) if "://" not in url else url)
        self._root = str(root).rstrip("/")
        self._is_local = isinstance(self._system, LocalFileSystem)
        protocols = self._system.protocol
        names = {protocols} if isinstance(protocols, str) else set(protocols)
        self._is_object_store = not names.isdisjoint(_OBJECT_STORES)

    @property
    def local_path(self) -> str | None:
        """Path of the archive, if it is local."""
        return self._root if self._is_local else None

    def is_inside(self, directory: str) -> bool:
        """Return whether the archive is in a local directory."""
        return self._is_local and f"{self._root}/".startswith(f"{os.path.abspath(directory).rstrip('/')}/")

    def exists(self) -> bool:
        """Return whether there is an archive.

        Raises:
            ArchiveError: A newer version has written it, or that cannot be known.
        """
        octets = self.read(MARKER)
        if octets is None:
            return False
        try:
            found = int(json.loads(octets)["format"])
        except (ValueError, KeyError, TypeError) as error:
            text = f"{self.shown}/{MARKER} is damaged, or {self.shown} is not an archive of Leveret"
            raise ArchiveError(text) from error
        if found > FORMAT:
            raise ArchiveError(f"{self.shown} was written by a newer version of Leveret")
        return True

    def make(self) -> None:
        """Make the archive, if it does not exist.

        Raises:
            ArchiveError: It cannot be written, or a newer version has written it.
        """
        if not self.exists():
            try:
                self.create(MARKER, json.dumps({"format": FORMAT}).encode() + b"\n")
            except FileExistsError:
                # Another archiver was faster.
                self.exists()

    def read(self, path: str) -> bytes | None:
        """Return the contents of a file; None if it does not exist.

        Raises:
            ArchiveError: It cannot be read.
        """
        try:
            with self.errors(path):
                octets: bytes = self._system.cat_file(self._at(path))
                return octets
        except FileNotFoundError:
            return None

    def create(self, path: str, octets: bytes) -> None:
        """Make a file in one step; it is on disk when this returns.

        Raises:
            FileExistsError: It exists.
            ArchiveError: It could not be made, or that is not known.
        """
        where = self._at(path)
        with self.errors(path, is_written=True):
            if self._is_object_store:
                self._system.pipe_file(where, octets, mode="create")
                return
            self._make_directory_of(path)
            draft = f"{where}.{uuid4().hex}{DRAFT}"
            if self._is_local:
                _create_synced(draft, where, octets)
                _sync_directories(where, self._root)
                return
            self._system.pipe_file(draft, octets)
            if self._system.exists(where):
                raise FileExistsError(where)
            self._system.mv(draft, where)

    def replace(self, path: str, octets: bytes) -> None:
        """Make a small file, or give it other contents: a hint, since it is neither synced nor made in one step.

        Raises:
            ArchiveError: It could not be written.
        """
        with self.errors(path, is_written=True):
            self._make_directory_of(path)
            self._system.pipe_file(self._at(path), octets)

    def new_file(self, path: str) -> Any:
        """Return what a new data file is written to, for finish() or discard().

        Raises:
            ArchiveError: It could not be made.
        """
        with self.errors(path, is_written=True):
            self._make_directory_of(path)
            return self._system.open(self._draft_of(path), "wb")

    def finish(self, path: str, sink: BinaryIO) -> None:
        """Give a data file that has been written its name; it is on disk when this returns.

        Raises:
            ArchiveError: It could not be written.
        """
        where = self._at(path)
        with self.errors(path, is_written=True):
            if self._is_local:
                sink.flush()
                os.fsync(sink.fileno())
            sink.close()
            if self._is_local:
                os.rename(self._draft_of(path), where)
                _sync_directories(where, self._root)
            elif not self._is_object_store:
                self._system.mv(self._draft_of(path), where)

    def discard(self, path: str, sink: Any) -> None:
        """Drop a data file that was not finished, as well as that goes: no manifest names it."""
        try:
            if not self._is_local and hasattr(sink, "discard"):
                sink.discard()
                # Otherwise it is uploaded when it is freed.
                sink.closed = True
            else:
                sink.close()
            self._system.rm_file(self._draft_of(path))
        except Exception:  # noqa: BLE001  Each file system has exceptions of its own; the first error is reported.
            pass

    def open(self, path: str) -> Any:
        """Open a file for reading at any place.

        Raises:
            FileNotFoundError: It does not exist.
            ArchiveError: It cannot be opened.
        """
        with self.errors(path):
            return self._system.open(self._at(path), "rb")

    def move(self, path: str, to: str) -> None:
        """Give a file another path, if it exists.

        Raises:
            ArchiveError: It could not be moved.
        """
        with self.errors(path), suppress(FileNotFoundError):
            self._make_directory_of(to)
            self._system.mv(self._at(path), self._at(to))

    def names(self, directory: str) -> list[str]:
        """Return the sorted names of what is in a directory; an empty list if it does not exist.

        Raises:
            ArchiveError: It cannot be listed.
        """
        with self.errors(directory):
            self._system.invalidate_cache()
            try:
                found = self._system.ls(self._at(directory), detail=False)
            except FileNotFoundError:
                return []
        return sorted(name for each in found if (name := str(each).rstrip("/").rpartition("/")[2]))

    def paths_below(self, directory: str) -> list[str]:
        """Return the paths of all files below a directory; an empty list if it does not exist.

        Raises:
            ArchiveError: It cannot be listed.
        """
        with self.errors(directory):
            self._system.invalidate_cache()
            try:
                found = self._system.find(self._at(directory))
            except FileNotFoundError:
                return []
        root = self._system._strip_protocol(self._root).rstrip("/")
        return sorted(str(each)[len(root) :].lstrip("/") for each in found)

    def delete(self, path: str) -> None:
        """Delete a file, if it exists.

        Raises:
            ArchiveError: It could not be deleted.
        """
        with self.errors(path), suppress(FileNotFoundError):
            self._system.rm_file(self._at(path))

    def full_path(self, path: str) -> str:
        """Return where a file is, for other programs."""
        return f"{self._root}/{path}" if self._is_local else str(self._system.unstrip_protocol(self._at(path)))

    def location(self, path: str) -> str:
        """Return the URL of a file, also of a local one."""
        return f"file://{self._root}/{path}" if self._is_local else self.full_path(path)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _draft_of(self, path: str) -> str:
        """Return where a data file is while it is written."""
        return self._at(path) if self._is_object_store else f"{self._at(path)}{DRAFT}"

    def _make_directory_of(self, path: str) -> None:
        if not self._is_object_store:
            self._system.makedirs(self._at(path).rpartition("/")[0], exist_ok=True)

    @contextmanager
    def errors(self, path: str, is_written: bool = False) -> Iterator[None]:
        """Make errors of the file system in a block those of the archive.

        Args:
            path: The file that they are about; empty for the whole archive.
            is_written: Whether it is written: that it is not found is an error, as of a bucket that does not exist.
        Raises:
            FileNotFoundError, FileExistsError: As the file system has raised it.
            ArchiveError: For all other exceptions.
        """
        where = f"{self.shown}/{path}" if path else self.shown
        try:
            yield
        except (ArchiveError, FileExistsError):
            raise
        except Exception as error:  # Each file system has exceptions of its own.
            if isinstance(error, FileNotFoundError) and not is_written:
                raise
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ArchiveError(f"{where}: {mask_text(said, self.url)}") from error


def _create_synced(draft: str, path: str, octets: bytes) -> None:
    """Make a local file by way of a draft."""
    try:
        with open(draft, "xb") as file:
            for at in range(0, len(octets), _SYNCED_BYTES):
                file.write(memoryview(octets)[at : at + _SYNCED_BYTES])
                file.flush()
                os.fsync(file.fileno())
        _link(draft, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


def _link(draft: str, path: str) -> None:
    """Give a draft its name, unless there is such a file."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _WITHOUT_LINKS:
            raise
        if os.path.exists(path):
            raise FileExistsError(path) from error
        os.rename(draft, path)


def _sync_directories(path: str, root: str) -> None:
    """Sync the directory of a file, and those above it, of which any may be new."""
    directory = os.path.dirname(path)
    while len(directory) >= len(root):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        directory = os.path.dirname(directory)

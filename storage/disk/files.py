"""The calls to the operating system that the store makes: a seam at which tests put a disk that fails."""

from __future__ import annotations

import fcntl
import os
import shutil
from time import perf_counter
from typing import Protocol

from leveret.storage.disk.file_counts import FileCounts


class DirectoryInUseError(Exception):
    """Another process has the data directory open."""


class TornWriteError(OSError):
    """A write failed half way and could not be taken back: the file has to be cut before more is appended."""


class Files(Protocol):
    """Files by path and by handle. Every method but read_all() on a missing file may raise OSError.

    Attributes:
        appended: Bytes appended so far, to all files.
    """

    appended: int

    def open(self, path: str, create: bool = False) -> int:
        """Open a file for reading and appending; return its handle.

        Args:
            path: Where it is.
            create: Make an empty file if there is none.
        """

    def close(self, handle: int) -> None:
        """Give a handle back."""

    def append(self, handle: int, octets: bytes) -> int:
        """Write at the end of a file; return how many bytes were written, which may be fewer."""

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        """Read from a place in a file; less than asked for only at its end."""

    def truncate(self, handle: int, size: int) -> None:
        """Cut a file."""

    def allocate(self, handle: int, size: int) -> None:
        """Have a file take up this many bytes of the disk, written or not."""

    def free_space(self, path: str) -> int:
        """Bytes that may still be written to the file system that a path is in."""

    def fdatasync(self, handle: int) -> None:
        """Return once the contents are on the disk."""

    def size(self, path: str) -> int:
        """The length of a file in bytes."""

    def read_all(self, path: str) -> bytes | None:
        """The contents of a file; None if there is no such file."""

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name; a file of that name is replaced."""

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it, as far as that can be done."""

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted; none if there is no such directory."""

    def make_directory(self, path: str) -> None:
        """Make a directory, and those above it; nothing happens if it is there."""

    def sync_directory(self, path: str) -> None:
        """Return once the names in a directory are on the disk."""

    def lock(self, path: str) -> int:
        """Lock a file, which is made if there is none, until its handle is closed or the process ends.

        Raises:
            DirectoryInUseError: Another process has locked it.
        """


class DiskFiles:
    """The operating system's files. It implements Files.

    Attributes:
        appended: See Files.
        counts: What has been done with open files.
    """

    __slots__ = ("appended", "counts")

    def __init__(self) -> None:
        self.appended = 0
        self.counts = FileCounts()

    def open(self, path: str, create: bool = False) -> int:
        """Open a file for reading and appending; return its handle."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return os.open(path, flags, 0o640)

    def close(self, handle: int) -> None:
        """Give a handle back."""
        os.close(handle)

    def append(self, handle: int, octets: bytes) -> int:
        """Write at the end of a file; return how many bytes were written."""
        started = perf_counter()
        written = os.write(handle, octets)
        self.counts.written(written, perf_counter() - started)
        self.appended += written
        return written

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        """Read from a place in a file; less than asked for only at its end."""
        started = perf_counter()
        octets = os.pread(handle, size, offset)
        self.counts.read(len(octets), perf_counter() - started)
        return octets

    def truncate(self, handle: int, size: int) -> None:
        """Cut a file."""
        os.ftruncate(handle, size)

    def allocate(self, handle: int, size: int) -> None:
        """Have a file take up this many bytes of the disk, written or not."""
        os.posix_fallocate(handle, 0, size)

    def free_space(self, path: str) -> int:
        """Bytes that may still be written to the file system that a path is in."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def fdatasync(self, handle: int) -> None:
        """Return once the contents are on the disk."""
        started = perf_counter()
        os.fdatasync(handle)
        self.counts.synced(perf_counter() - started)

    def size(self, path: str) -> int:
        """The length of a file in bytes."""
        return os.stat(path).st_size

    def read_all(self, path: str) -> bytes | None:
        """The contents of a file; None if there is no such file."""
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name; a file of that name is replaced."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it, as far as that can be done."""
        shutil.rmtree(path, ignore_errors=True)

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted; none if there is no such directory."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_directory(self, path: str) -> None:
        """Make a directory, and those above it; nothing happens if it is there."""
        os.makedirs(path, 0o750, exist_ok=True)

    def sync_directory(self, path: str) -> None:
        """Return once the names in a directory are on the disk."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def lock(self, path: str) -> int:
        """Lock a file, which is made if there is none, until its handle is closed or the process ends."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            message = (
                f"{path} is locked: another broker has this data directory open; stop it or use another --data-dir"
            )
            raise DirectoryInUseError(message) from error
        return handle


def write_file(files: Files, handle: int, octets: bytes, size: int) -> None:
    """Append all of `octets` or nothing.

    Args:
        files: The seam.
        handle: The file.
        octets: What to append.
        size: The file's length before; it is cut back to this if not all could be written.
    Raises:
        TornWriteError: Not all could be written, and the file could not be cut back.
        OSError: Not all could be written.
    """
    try:
        written = files.append(handle, octets)
        # A short write is followed by the error that caused it, unless there is room again.
        while written < len(octets):
            more = files.append(handle, octets[written:])
            if not more:
                raise OSError("nothing was written")
            written += more
    except OSError as error:
        try:
            files.truncate(handle, size)
        except OSError:
            raise TornWriteError(error.errno, error.strerror) from error
        raise


def write_draft(files: Files, path: str, octets: bytes, sync: bool = False) -> None:
    """Write a whole file that is to take the place of another once it has been synced.

    Args:
        files: The seam.
        path: The file; what it held before goes.
        octets: What it is to hold.
        sync: Sync it now.
    Raises:
        OSError: It could not be written, or not be synced; nothing of it is left.
    """
    handle = files.open(path, create=True)
    try:
        files.truncate(handle, 0)
        write_file(files, handle, octets, 0)
        if sync:
            files.fdatasync(handle)
    except OSError:
        # What is half done takes room that may be scarce.
        files.unlink(path)
        raise
    finally:
        files.close(handle)


def replace_file(files: Files, directory: str, name: str, octets: bytes) -> None:
    """Put a file in the place of another so that a crash leaves either the old or the new one, whole.

    Raises:
        OSError: The old file is still there.
    """
    path, draft = f"{directory}/{name}", f"{directory}/{name}.tmp"
    write_draft(files, draft, octets, sync=True)
    files.rename(draft, path)
    files.sync_directory(directory)


def sync_files(files: Files, directory: str) -> None:
    """Sync all files in a directory, in the order of their names, and the directory itself.

    Raises:
        OSError: A sync failed.
    """
    for name in files.list_directory(directory):
        try:
            handle = files.open(f"{directory}/{name}")
        except (IsADirectoryError, FileNotFoundError):
            continue
        try:
            files.fdatasync(handle)
        finally:
            files.close(handle)
    files.sync_directory(directory)

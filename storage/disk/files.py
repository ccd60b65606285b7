"""File system interface of the store, how many files are open, and how much space is free.

Tests replace it with a disk that fails.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Protocol, TypeVar

from leveret.storage.compiler_hints import mypyc_attr

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class FileCounts:
    """Monotonic counters. Not locked: a concurrent increment may be lost.

    Attributes:
        reads: Number of reads.
        read_bytes: Bytes read.
        read_seconds: Time spent reading.
        writes: Number of writes.
        written_bytes: Bytes written.
        write_seconds: Time spent writing.
        syncs: Number of syncs.
        sync_seconds: Time spent syncing.
    """

    reads: int = 0
    read_bytes: int = 0
    read_seconds: float = 0.0
    writes: int = 0
    written_bytes: int = 0
    write_seconds: float = 0.0
    syncs: int = 0
    sync_seconds: float = 0.0

    def read(self, octets: int, seconds: float) -> None:
        """Count a read."""
        self.reads += 1
        self.read_bytes += octets
        self.read_seconds += seconds

    def written(self, octets: int, seconds: float) -> None:
        """Count a write."""
        self.writes += 1
        self.written_bytes += octets
        self.write_seconds += seconds

    def synced(self, seconds: float) -> None:
        """Count a sync."""
        self.syncs += 1
        self.sync_seconds += seconds


class DirectoryInUseError(Exception):
    """Another process has the data directory open."""


class UnreadableFileError(Exception):
    """A file that is needed cannot be read; the message says which, and what to do."""


@mypyc_attr(native_class=False)
class TornWriteError(OSError):
    """A partial write could not be undone: the file must be truncated before the next append."""


class Files(Protocol):
    """File system interface. Every method may raise OSError; read_all() does not if the file is missing.

    Attributes:
        appended: Bytes appended to all files so far.
    """

    appended: int

    def open(self, path: str, create: bool = False) -> int:
        """Open a file for reading and appending; return its handle.

        Args:
            path: Path of the file.
            create: Create the file if it does not exist.
        """

    def close(self, handle: int) -> None:
        """Close a handle."""

    def append(self, handle: int, octets: bytes) -> int:
        """Append to a file; return the number of bytes written, which may be less than requested."""

    def overwrite(self, path: str, octets: bytes, offset: int) -> None:
        """Write bytes at an offset of a file that exists."""

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        """Read `size` bytes at an offset; fewer only at the end of the file."""

    def truncate(self, handle: int, size: int) -> None:
        """Truncate a file to a size in bytes."""

    def allocate(self, handle: int, size: int) -> None:
        """Allocate disk space for this many bytes of a file."""

    def free_space(self, path: str) -> int:
        """Return the free space of a path's file system in bytes."""

    def fdatasync(self, handle: int) -> None:
        """Sync a file's contents to disk."""

    def size(self, path: str) -> int:
        """Return the length of a file in bytes."""

    def read_all(self, path: str) -> bytes | None:
        """Return the contents of a file; None if it does not exist."""

    def read_foreign(self, path: str, limit: int) -> bytes | None:
        """Return the contents of a file that other programs write; None if it does not exist.

        Args:
            path: Path of the file. One that is no regular file (a link, say, or a pipe) cannot be read.
            limit: Bytes above which it cannot be read.
        """

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory; an existing target file is replaced."""

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory tree, ignoring errors."""

    def list_directory(self, path: str) -> list[str]:
        """Return the sorted names in a directory; empty if it does not exist."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, if missing."""

    def sync_directory(self, path: str) -> None:
        """Sync a directory's entries to disk."""

    def lock(self, path: str) -> int:
        """Create and lock a file until its handle is closed or the process ends.

        Raises:
            DirectoryInUseError: Another process has locked it.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class DiskFiles:
    """Implementation of Files by the operating system.

    Attributes:
        appended: See Files.
        counts: Counters of reads, writes and syncs.
    """

    __slots__ = ("appended", "counts")

    def __init__(self) -> None:
        self.appended = 0
        self.counts = FileCounts()

    def open(self, path: str, create: bool = False) -> int:
        """Open a file for reading and appending; return its handle. No file is created by way of a symbolic link."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT | os.O_NOFOLLOW if create else 0)
        return os.open(path, flags, 0o640)

    def close(self, handle: int) -> None:
        """Close a handle."""
        os.close(handle)

    def append(self, handle: int, octets: bytes) -> int:
        """Append to a file; return the number of bytes written."""
        started = perf_counter()
        written = os.write(handle, octets)
        self.counts.written(written, perf_counter() - started)
        self.appended += written
        return written

    def overwrite(self, path: str, octets: bytes, offset: int) -> None:
        """Write bytes at an offset of a file that exists."""
        with open(path, "r+b", buffering=0) as file:
            file.seek(offset)
            left = memoryview(octets)
            while left:
                left = left[file.write(left) or 0 :]

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        """Read `size` bytes at an offset; fewer only at the end of the file."""
        started = perf_counter()
        octets = os.pread(handle, size, offset)
        self.counts.read(len(octets), perf_counter() - started)
        return octets

    def truncate(self, handle: int, size: int) -> None:
        """Truncate a file to a size in bytes."""
        os.ftruncate(handle, size)

    def allocate(self, handle: int, size: int) -> None:
        """Allocate disk space for this many bytes of a file."""
        os.posix_fallocate(handle, 0, size)

    def free_space(self, path: str) -> int:
        """Return the free space of a path's file system in bytes."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def fdatasync(self, handle: int) -> None:
        """Sync a file's contents to disk."""
        started = perf_counter()
        os.fdatasync(handle)
        self.counts.synced(perf_counter() - started)

    def size(self, path: str) -> int:
        """Return the length of a file in bytes."""
        return os.stat(path).st_size

    def read_all(self, path: str) -> bytes | None:
        """Return the contents of a file; None if it does not exist."""
        return _read(path, 0, None)

    def read_foreign(self, path: str, limit: int) -> bytes | None:
        """Return the contents of a file that other programs write; None if it does not exist."""
        return _read(path, os.O_NOFOLLOW, limit)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory; an existing target file is replaced."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory tree, ignoring errors."""
        shutil.rmtree(path, ignore_errors=True)

    def list_directory(self, path: str) -> list[str]:
        """Return the sorted names in a directory; empty if it does not exist."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, if missing."""
        os.makedirs(path, 0o750, exist_ok=True)

    def sync_directory(self, path: str) -> None:
        """Sync a directory's entries to disk."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def lock(self, path: str) -> int:
        """Create and lock a file until its handle is closed or the process ends."""
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


def _read(path: str, flags: int, limit: int | None) -> bytes | None:
    """Return the contents of a regular file; None if it does not exist."""
    try:
        # Without O_NONBLOCK, opening a pipe waits until somebody writes to it.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise OSError(errno.ELOOP, "it is a symbolic link", path) from error
        raise
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        if limit is not None and status.st_size > limit:
            raise OSError(errno.EFBIG, f"it is longer than {limit} bytes", path)
        with open(handle, "rb", closefd=False) as file:
            return file.read() if limit is None else file.read(limit)
    finally:
        os.close(handle)


@mypyc_attr(allow_interpreted_subclasses=True)
class UnsyncedFiles(DiskFiles):
    """Files of a directory that is removed before a loss of power could matter: nothing is synced."""

    __slots__ = ()

    def allocate(self, handle: int, size: int) -> None:
        """Set the length of a file, without disk space."""
        os.ftruncate(handle, size)

    def fdatasync(self, handle: int) -> None:
        """Do nothing."""

    def sync_directory(self, path: str) -> None:
        """Do nothing."""


def numbers_in(files: Files, directory: str, prefix: str, suffix: str, digits: int) -> list[int]:
    """Return the numbers in the names of files that have a prefix, that many digits and a suffix, ascending."""
    inner = [name.removeprefix(prefix).removesuffix(suffix) for name in files.list_directory(directory)]
    return [int(number) for number in inner if len(number) == digits and number.isascii() and number.isdigit()]


def must_read(path: str, read: Callable[[], _T]) -> _T:
    """Read a file without which messages would be lost or come back; if the system fails to, try once more.

    Args:
        path: Path of the file, for the error.
        read: Reads it.
    Raises:
        UnreadableFileError: It cannot be read.
        FileNotFoundError: There is no such file.
    """
    try:
        return read()
    except FileNotFoundError:
        raise
    except OSError:
        pass
    try:
        return read()
    except FileNotFoundError:
        raise
    except OSError as error:
        what_to_do = "repair the disk, or move the file away to do without it"
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror or error}; {what_to_do}") from error


def write_file(files: Files, handle: int, octets: bytes, size: int) -> None:
    """Append `octets` completely or not at all.

    Args:
        handle: The file.
        octets: Bytes to append.
        size: Length of the file before the write; it is truncated to this if the write fails.
    Raises:
        TornWriteError: The write failed, and the file could not be truncated.
        OSError: The write failed; the file is unchanged.
    """
    try:
        written = files.append(handle, octets)
        # After a short write the next one reports the error, unless space has become free.
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
    """Write a complete file that will replace another one after it has been synced.

    Args:
        path: Path of the file; existing contents are overwritten.
        octets: The new contents.
        sync: Whether to sync the file now.
    Raises:
        OSError: It could not be written or synced; it has been removed.
    """
    handle = files.open(path, create=True)
    try:
        files.truncate(handle, 0)
        write_file(files, handle, octets, 0)
        if sync:
            files.fdatasync(handle)
    except OSError:
        # A partial file would use space that may be scarce.
        files.unlink(path)
        raise
    finally:
        files.close(handle)


def replace_file(files: Files, directory: str, name: str, octets: bytes) -> None:
    """Replace a file atomically: a crash leaves either the old or the new contents.

    Raises:
        OSError: The old file is unchanged.
    """
    path, draft = f"{directory}/{name}", f"{directory}/{name}.tmp"
    write_draft(files, draft, octets, sync=True)
    files.rename(draft, path)
    files.sync_directory(directory)


def sync_path(files: Files, path: str) -> None:
    """Sync a file, if it exists.

    Raises:
        OSError: The sync failed.
    """
    try:
        handle = files.open(path)
    except FileNotFoundError:
        # Dropped meanwhile: nobody needs what was in it.
        return
    try:
        files.fdatasync(handle)
    finally:
        files.close(handle)


def sync_files(files: Files, directory: str) -> None:
    """Sync all files in a directory in name order, then the directory.

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


#: Calls of close_idle() without a use after which a file open for reading, and its read-ahead buffer, is released.
_READ_IDLE_CHECKS: Final = 2
#: The same for files open for appending.
_APPEND_IDLE_CHECKS: Final = 30
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE})


class Closable(Protocol):
    """Owner of an open file, which opens it again when needed."""

    def release(self) -> bool:
        """Close the file; return False if that is not possible now."""


class Descriptors:
    """The open files of all stores of a data directory.

    Args:
        append_max: Maximum number of files open for appending.
        read_max: Maximum number of files open for reading.
    """

    def __init__(self, append_max: int = 256, read_max: int = 128) -> None:
        self._append_max = append_max
        self._read_max = read_max
        self._checks = 0
        #: Owner to the check number of its last use, least recently used first.
        self._appending: OrderedDict[Closable, int] = OrderedDict()
        self._reading: OrderedDict[Closable, int] = OrderedDict()

    def note_append(self, owner: Closable) -> None:
        """Register a file that is about to be appended to."""
        _note(self._appending, owner, self._checks, self._append_max)

    def note_read(self, owner: Closable) -> None:
        """Register a file that is about to be read."""
        _note(self._reading, owner, self._checks, self._read_max)

    def open(self, files: Files, path: str, create: bool = False) -> int:
        """Open a file; if that fails, try again once, because messages cannot be read without it.

        If the process has no descriptors left, all files that can be closed are closed before.

        Raises:
            OSError: The file could not be opened.
        """
        try:
            return files.open(path, create)
        except FileNotFoundError:
            raise
        except OSError as error:
            if is_shortage(error):
                self.close_all()
        return files.open(path, create)

    def close_all(self) -> None:
        """Close all files that can be closed now."""
        _close_before(self._appending, self._checks)
        _close_before(self._reading, self._checks)

    def close_idle(self) -> None:
        """Close idle files. Called about once a second."""
        self._checks += 1
        _close_before(self._appending, self._checks - _APPEND_IDLE_CHECKS)
        _close_before(self._reading, self._checks - _READ_IDLE_CHECKS)


def is_shortage(error: OSError) -> bool:
    """Return whether an error means that no file descriptors are left, a temporary condition."""
    return error.errno in _SHORTAGES


def _note(files: OrderedDict[Closable, int], owner: Closable, check: int, most: int) -> None:
    used = files.get(owner)
    if used == check:
        # Those used since the last check are in the order of their first use: that is near enough.
        return
    if used is not None:
        files.move_to_end(owner)
    elif len(files) >= most:
        _close_one(files)
    files[owner] = check


def _close_one(files: OrderedDict[Closable, int]) -> None:
    """Close the least recently used file that can be closed now."""
    for owner in files:
        if owner.release():
            del files[owner]
            return


def _close_before(files: OrderedDict[Closable, int], check: int) -> None:
    for owner, used in [*files.items()]:
        if used > check:
            break
        if owner.release():
            del files[owner]


#: Name of the reserve file in the data directory.
BALLAST: Final = "ballast"
#: Maximum and minimum seconds between two checks.
_MAX_PAUSE: Final = 10.0
_MIN_PAUSE: Final = 0.1
#: Maximum while the alarm is set: blocked publishers should continue soon after space is free.
_MAX_PAUSE_IN_ALARM: Final = 1.0
#: Assumed highest rate at which free space shrinks, in bytes per second.
_WORST_RATE: Final = 250e6
#: Bytes written after which the next check is due at once.
_CHECK_AFTER_BYTES: Final = 64 << 20


class DiskSpace:
    """Compares free disk space with a limit and sets or clears the disk alarm.

    A failed write also sets the alarm until a write succeeds: with a quota, the reported free space can be wrong.
    The ballast is released when writes that free space do not fit: events and manifest edits. It is created again
    when there is enough space.

    Args:
        directory: Path of the data directory.
        limit: Configured disk free limit in bytes.
        needed: Bytes that the stores may write before publishers are blocked.
        ballast_bytes: Size of the ballast file; 0 for none.
        on_alarm: Called with this object when the alarm is set or cleared.

    Attributes:
        free: Free bytes at the last check.
        alarm: Whether the alarm is set.
        refused: Whether the last write failed.
        lacks_descriptors: Whether it failed because the process has no file descriptors left.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        limit: int,
        needed: int,
        ballast_bytes: int,
        on_alarm: Callable[[DiskSpace], None],
    ) -> None:
        self._files = files
        self._directory = directory
        self._configured_limit = limit
        self._needed = needed
        self._ballast_bytes = ballast_bytes
        self._has_ballast = ballast_bytes > 0 and self._find_ballast()
        self._on_alarm = on_alarm
        self._checked_at = 0
        self.free = 0
        self.alarm = False
        self.refused = False
        self.lacks_descriptors = False

    @property
    def limit(self) -> int:
        """Free bytes below which the alarm is set: the configured limit, or what the stores need if that is more."""
        return max(self._configured_limit, self._needed)

    @limit.setter
    def limit(self, limit: int) -> None:
        self._configured_limit = limit

    @property
    def check_due(self) -> bool:
        """Whether enough has been written since the last check that the next one is due now."""
        return self._files.appended - self._checked_at >= _CHECK_AFTER_BYTES

    @property
    def needs_check(self) -> bool:
        """Whether a check is due, or the last write failed."""
        return self.refused or self.lacks_descriptors or self.check_due

    def check(self) -> float:
        """Check the free space; return the seconds until the next check."""
        self._checked_at = self._files.appended
        try:
            self.free = self._files.free_space(self._directory)
        except OSError:
            # Keep the last known value.
            return _MAX_PAUSE_IN_ALARM
        alarm = self.refused or self.free < self.limit
        if not alarm:
            self._make_ballast()
        if alarm is not self.alarm:
            self.alarm = alarm
            self._on_alarm(self)
        until_limit = 2 * abs(self.free - self.limit) / _WORST_RATE
        return max(_MIN_PAUSE, min(until_limit, _MAX_PAUSE_IN_ALARM if alarm else _MAX_PAUSE))

    def note_write(self, refused: bool, lacks_descriptors: bool = False) -> None:
        """Record whether the last write failed, and whether it failed for lack of file descriptors."""
        self.lacks_descriptors = lacks_descriptors
        if refused is not self.refused:
            self.refused = refused
            self.check()

    def release_ballast(self) -> bool:
        """Remove the ballast file; return False if there is none."""
        if not self._has_ballast:
            return False
        self._has_ballast = False
        try:
            self._files.unlink(f"{self._directory}/{BALLAST}")
        except OSError:
            return False
        return True

    def _find_ballast(self) -> bool:
        """Return whether a ballast file of the right size exists; one of another size is removed."""
        path = f"{self._directory}/{BALLAST}"
        try:
            if self._files.size(path) == self._ballast_bytes:
                return True
            self._files.unlink(path)
        except OSError:
            # Usually it does not exist.
            pass
        return False

    def _make_ballast(self) -> None:
        """Create the ballast file if it is missing and enough space remains."""
        size = self._ballast_bytes
        if self._has_ballast or not size or self.free - size < self.limit + size // 4:
            return
        path = f"{self._directory}/{BALLAST}"
        try:
            handle = self._files.open(path, create=True)
            try:
                self._files.allocate(handle, size)
            except OSError:
                self._files.unlink(path)
                raise
            finally:
                self._files.close(handle)
        except OSError:
            # The ballast is a precaution; usually the alarm is set in time without it.
            return
        self._has_ballast = True
        self.free -= size

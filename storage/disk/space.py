"""Free disk space monitor, disk alarm, and a reserve for writes that must succeed on a full disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.storage.disk.files import Files

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

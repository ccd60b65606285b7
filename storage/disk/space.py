"""How much room the disk has, when that is too little, and a reserve for what must be written all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.storage.disk.files import Files

#: Name of the file, in the data directory, that only takes up room.
BALLAST: Final = "ballast"
#: Seconds between two looks.
_LONGEST: Final = 10.0
_SHORTEST: Final = 0.1
#: While the alarm is set nothing grows, and blocked publishers want to continue.
_LONGEST_IN_ALARM: Final = 1.0
#: Bytes a second that free space may fall by at worst.
_FALL: Final = 250e6
#: So much may be written until the next look is due at once.
_WRITTEN: Final = 64 << 20


class DiskSpace:
    """Compares the free space with a limit, and tells when it falls below and when it is back.

    The alarm is also set when a write is refused, whatever the system says of free space – there may be a quota –
    until one succeeds. The ballast is given up when there is no room for what must not wait for publishers to go
    on: what became of messages, and which segments may go. It is made again once there is room to spare.

    Args:
        files: The seam to the operating system.
        directory: Path of the data directory.
        limit: Bytes that ought to be free.
        needed: Bytes that the stores may need before anyone can hold them up.
        ballast_bytes: Length of the ballast; 0 for none.
        on_alarm: Called with True when the alarm is set and with False when it is cleared.

    Attributes:
        free: Bytes free at the last look.
        alarm: Whether the alarm is set.
        refused: The last attempt to write something failed.
        lacks_descriptors: It did because the process has no file descriptor left.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        limit: int,
        needed: int,
        ballast_bytes: int,
        on_alarm: Callable[[bool], None],
    ) -> None:
        self._files = files
        self._directory = directory
        self._wanted = limit
        self._needed = needed
        self._ballast_bytes = ballast_bytes
        self._has_ballast = ballast_bytes > 0 and self._find_ballast()
        self._on_alarm = on_alarm
        self._looked = 0
        self.free = 0
        self.alarm = False
        self.refused = False
        self.lacks_descriptors = False

    @property
    def limit(self) -> int:
        """Bytes below which the alarm is set: what was asked for, or what the stores need if that is more."""
        return max(self._wanted, self._needed)

    @limit.setter
    def limit(self, limit: int) -> None:
        self._wanted = limit

    @property
    def due(self) -> bool:
        """Whether so much has been written since the last look that the next one should not wait."""
        return self._files.appended - self._looked >= _WRITTEN

    def look(self) -> float:
        """Look at the free space; return in how many seconds to look again."""
        self._looked = self._files.appended
        try:
            self.free = self._files.free_space(self._directory)
        except OSError:
            # What is known is what it was.
            return _LONGEST_IN_ALARM
        alarm = self.refused or self.free < self.limit
        if not alarm:
            self._make_ballast()
        if alarm is not self.alarm:
            self.alarm = alarm
            self._on_alarm(alarm)
        until_limit = 2 * abs(self.free - self.limit) / _FALL
        return max(_SHORTEST, min(until_limit, _LONGEST_IN_ALARM if alarm else _LONGEST))

    def note(self, refused: bool, lacks_descriptors: bool = False) -> None:
        """Note whether something could not be written just now, and whether that was for want of file descriptors."""
        self.lacks_descriptors = lacks_descriptors
        if refused is not self.refused:
            self.refused = refused
            self.look()

    def give_up_ballast(self) -> bool:
        """Make room; tell whether there was any ballast to give up."""
        if not self._has_ballast:
            return False
        self._has_ballast = False
        try:
            self._files.unlink(f"{self._directory}/{BALLAST}")
        except OSError:
            return False
        return True

    def _find_ballast(self) -> bool:
        """Whether there is one from before; one of another length is removed."""
        path = f"{self._directory}/{BALLAST}"
        try:
            if self._files.size(path) == self._ballast_bytes:
                return True
            self._files.unlink(path)
        except OSError:
            # As a rule there is none.
            pass
        return False

    def _make_ballast(self) -> None:
        """Make the ballast, if there is none and making it leaves room to spare."""
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
            # It is a precaution; without it the alarm still comes in time as a rule.
            return
        self._has_ballast = True
        self.free -= size

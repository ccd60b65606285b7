"""The last frames of a leader, for standbys that were away for a while.

The newest are in memory. Older ones are in files, which are only for this process: nothing is synced, and a start
removes them.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_right
from collections import deque
from operator import attrgetter
from pathlib import Path
from typing import Final

from leveret.broker.replication.frames import HEADER_BYTES, Frame, FrameError, body_bytes, unpack_frame

#: Bytes of frames in memory, and of a file.
_MEMORY_BYTES: Final = 16 << 20
_FILE_BYTES: Final = 32 << 20
_first: Final = attrgetter("first")


class _File:
    """A file of consecutive frames.

    Attributes:
        path: Its path.
        firsts: Number of the first operation of each frame.
        offsets: Where each frame begins; the last is the end of the file.
    """

    __slots__ = ("firsts", "handle", "offsets", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.firsts: list[int] = []
        self.offsets = [0]
        self.handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)

    def remove(self) -> None:
        os.close(self.handle)
        self.path.unlink(missing_ok=True)


class Backlog:
    """Consecutive frames, oldest first. Used by one event loop.

    Args:
        directory: Where older frames are kept; what is in it is removed.
        limit: Bytes of frames that are kept.
        memory_bytes: Bytes of frames that are kept in memory.

    Attributes:
        last: Number of the last operation; the next frame begins with the next one.
        first: Number of the oldest operation that is kept; one more than `last` without any.
        total: Bytes of all frames that were ever added.
    """

    def __init__(self, directory: Path, limit: int, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._directory = directory
        self._limit = limit
        self._memory_bytes = memory_bytes
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._files: deque[_File] = deque()
        self.last = 0
        self.first = 1
        self.total = 0
        self.clear(0)

    def clear(self, last: int) -> None:
        """Forget all frames; the next one begins after operation `last`."""
        self._close_files()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._frames.clear()
        self._bytes = 0
        self.last, self.first = last, last + 1

    def add(self, frame: Frame) -> None:
        """Add the next frame."""
        assert frame.first == self.last + 1
        self._frames.append(frame)
        self._bytes += len(frame.octets)
        self.total += len(frame.octets)
        self.last = frame.last
        while self._bytes > self._memory_bytes and len(self._frames) > 1:
            self._move_oldest()

    def _move_oldest(self) -> None:
        """Move the oldest frame in memory to a file; drop the oldest file if there is too much."""
        frame = self._frames.popleft()
        size = len(frame.octets)
        self._bytes -= size
        try:
            if not self._files or self._files[-1].offsets[-1] >= _FILE_BYTES:
                self._files.append(_File(self._directory / f"{frame.first}.frames"))
            file = self._files[-1]
            if os.pwrite(file.handle, frame.octets, file.offsets[-1]) != size:
                raise OSError("nothing was written")
        except OSError:
            # No space: who needs what is dropped gets a copy.
            self._close_files()
            self.first = self._frames[0].first
            return
        file.firsts.append(frame.first)
        file.offsets.append(file.offsets[-1] + size)
        while self._files and self._bytes + sum(each.offsets[-1] for each in self._files) > self._limit:
            self._files.popleft().remove()
            self.first = self._files[0].firsts[0] if self._files else self._frames[0].first

    def after(self, number: int) -> Frame | None:
        """Return the frame that begins after operation `number`, which is not the last one.

        Returns:
            None if it is not kept any more.
        Raises:
            FrameError: No frame begins there, or the file is damaged.
        """
        if number + 1 < self.first:
            return None
        if self._frames and number + 1 >= self._frames[0].first:
            return self._in_memory(number + 1)
        return self._on_disk(number + 1)

    def _in_memory(self, first: int) -> Frame:
        # Who catches up begins with the oldest of many.
        frames = self._frames
        frame = frames[bisect_right(frames, first, key=_first) - 1]
        if frame.first != first:
            raise FrameError(f"no frame begins with operation {first}")
        return frame

    def _on_disk(self, first: int) -> Frame:
        file = self._files[bisect_right([each.firsts[0] for each in self._files], first) - 1]
        at = bisect_right(file.firsts, first) - 1
        if file.firsts[at] != first:
            raise FrameError(f"no frame begins with operation {first}")
        header = os.pread(file.handle, HEADER_BYTES, file.offsets[at])
        return unpack_frame(header + os.pread(file.handle, body_bytes(header), file.offsets[at] + HEADER_BYTES))

    def close(self) -> None:
        """Remove the files."""
        self._close_files()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _close_files(self) -> None:
        while self._files:
            self._files.popleft().remove()

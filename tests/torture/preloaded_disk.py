"""Starts brokers with the library of disk.c, and tells it which calls fail."""

from __future__ import annotations

import errno
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Final

from tests.integration.waiting import wait_until
from tests.support.cluster import send_signal, thread_states
from tests.torture.disk_image import DiskImage

#: Room, nanoseconds of the clock, refused writes, busy; then after, times, error and hits of each kind of call.
_CONTROL: Final = struct.Struct("<qqqq")
_BUSY_AT: Final = 24
#: States of stopped threads, as in /proc.
_STOPPED: Final = frozenset("Tt")
_FAULT: Final = struct.Struct("<iiii")
_SOURCE: Final = Path(__file__).with_name("disk.c")


class Call(IntEnum):
    """Kinds of calls that may fail, as in disk.c."""

    READ = 0
    WRITE = 1
    SYNC = 2
    OPEN = 3
    NAME = 4


class NoCompilerError(Exception):
    """There is no C compiler, so power cannot be cut and no call fails."""


def build(directory: Path) -> Path:
    """Compile the library; return its path."""
    library = directory / "disk.so"
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise NoCompilerError("no C compiler (cc) was found")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoCompilerError(f"{compiler} cannot compile {_SOURCE.name}: {done.stderr.strip()[-300:]}")
    return library


class PreloadedDisk:
    """What lies between a broker and its data directory."""

    def __init__(self, library: Path, root: Path, directory: Path, only: str = "") -> None:
        self._root = root
        self._record = directory / "record"
        control = directory / "control"
        size = _CONTROL.size + _FAULT.size * len(Call)
        control.write_bytes(_CONTROL.pack(-1, 0, 0, 0) + bytes(size - _CONTROL.size))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), size)
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "TORTURE_ROOT": str(root),
            "TORTURE_RECORD": str(self._record),
            "TORTURE_CONTROL": str(control),
            "TORTURE_ONLY": only,
        }
        self._image = DiskImage(root)

    def stop_between_calls(self, pid: int) -> None:
        """Stop a broker that is to be killed, so that all that it has done to its files is in the record."""
        with suppress(ProcessLookupError, FileNotFoundError):
            wait_until(lambda: self._stops_between_calls(pid), "it is in no call that is recorded")

    def _stops_between_calls(self, pid: int) -> bool:
        """Stop a process; let it go on, and return False, if it is in a call that is recorded."""
        send_signal(pid, signal.SIGSTOP)
        is_busy = thread_states(pid) & _STOPPED and struct.unpack_from("<q", self._control, _BUSY_AT)[0]
        if is_busy:
            os.kill(pid, signal.SIGCONT)
        return not is_busy

    def begin(self) -> None:
        """What is in the directory now is on the disk. Call while no broker runs."""
        self._record.unlink(missing_ok=True)
        self._image = DiskImage(self._root)

    def cut_power(self, rng: random.Random) -> None:
        """Leave what a loss of power would have left. Call after the broker has been killed."""
        image = self.replayed()
        image.write(image.after_power_loss(rng))
        self.begin()

    def replayed(self) -> DiskImage:
        """Return what is on the disk, and what is not yet, by the record until now. Call while no broker runs."""
        self._image.replay(self._record)
        self._record.unlink(missing_ok=True)
        return self._image

    def fail(self, call: Call, after: int, times: int = 1, error: int = errno.EIO) -> None:
        """Let calls fail."""
        # The number of times is what switches it on.
        _FAULT.pack_into(self._control, self._at(call), after, 0, error, 0)
        struct.pack_into("<i", self._control, self._at(call) + 4, times)

    def succeed(self, call: Call) -> int:
        """Let calls succeed again; return how many have failed."""
        hits: int = _FAULT.unpack_from(self._control, self._at(call))[3]
        _FAULT.pack_into(self._control, self._at(call), 0, 0, 0, 0)
        return hits

    def limit_room(self, octets: int | None) -> None:
        """Let the disk be full after so many bytes; None for no limit."""
        struct.pack_into("<q", self._control, 0, -1 if octets is None else octets)

    @property
    def refused_writes(self) -> int:
        """How many writes have found no room since the library was built."""
        return int(struct.unpack_from("<q", self._control, 16)[0])

    def step_clock(self, seconds: float) -> None:
        """Put the broker's wall clock ahead of the real one, or behind it if negative."""
        struct.pack_into("<q", self._control, 8, int(seconds * 1e9))

    def _at(self, call: Call) -> int:
        return _CONTROL.size + _FAULT.size * call

"""CPU time and memory of a process and its children, from /proc and the processes' CPU clocks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_LISTEN: Final = "0A"
# Places in /proc/PID/stat after the name, which ends at the last bracket.
_PARENT: Final = 1
_CPU: Final = slice(11, 13)  # utime and stime
_ENDED_CHILDREN: Final = slice(13, 15)  # utime and stime of children that have ended


class ProcessAccount:
    """The account of a broker's process and all its descendants."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far, user and system, all threads, ended children included."""
        return sum(map(_cpu_seconds, _tree(self.pid)))

    def rss_bytes(self) -> int:
        """Return the resident size now, summed over the processes."""
        return sum(_status_bytes(pid, "VmRSS:") for pid in _tree(self.pid))

    def reset_peak_rss(self) -> None:
        """Reset the peak to the current resident size, where the system permits it."""
        for pid in _tree(self.pid):
            try:
                (_PROC / str(pid) / "clear_refs").write_text("5")
            except OSError:
                pass

    def peak_rss_bytes(self) -> int:
        """Return the largest resident size since the reset, summed over the processes."""
        return sum(_status_bytes(pid, "VmHWM:") for pid in _tree(self.pid))


def listening_pid(port: int) -> int | None:
    """Find the process on this machine that listens on a TCP port; None if there is none that is ours."""
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not wanted:
        return None
    for pid in _pids():
        try:
            with os.scandir(_PROC / str(pid) / "fd") as entries:
                if any(_link(entry.path) in wanted for entry in entries):
                    return pid
        except OSError:
            continue
    return None


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _pids() -> Iterator[int]:
    for name in os.listdir(_PROC):
        if name.isdigit():
            yield int(name)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name; all zero for a process that has ended."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["0"] * 50


def _cpu_seconds(pid: int) -> float:
    fields = _stat(pid)
    ended = sum(map(int, fields[_ENDED_CHILDREN])) / _TICKS
    try:
        # The same as utime and stime, but in nanoseconds instead of hundredths of a second: clock_getcpuclockid(3).
        return time.clock_gettime(~pid << 3 | 2) + ended
    except OSError:
        return sum(map(int, fields[_CPU])) / _TICKS + ended


def _tree(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid in _pids():
        children.setdefault(int(_stat(pid)[_PARENT]), []).append(pid)
    tree = [root]
    for pid in tree:
        tree += children.get(pid, ())
    return tree


def _status_bytes(pid: int, field: str) -> int:
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(field))

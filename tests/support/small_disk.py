"""Mounts a small file system that a test can fill up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(directory: Path, kind: str, mib: int) -> Iterator[Path]:
    """Mount a small file system; skip the test if mounting is not permitted."""
    mounted = directory / "disk"
    mounted.mkdir()
    try:
        if kind == "tmpfs":
            _run("mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(mounted))
        else:
            image = directory / "image"
            with image.open("wb") as file:
                file.truncate((mib + 8) << 20)
            _run("mkfs.ext4", "-q", "-m", "0", str(image))
            _run("mount", "-o", "loop", str(image), str(mounted))
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"CANNOT MOUNT A SMALL DISK HERE, so a real full disk is not tested: {error}")
    try:
        yield mounted
    finally:
        # A failed test may have open files, so unmount lazily.
        _run("umount", "-l", str(mounted))


def fill(path: Path, leave: int = 0) -> None:
    """Write a file until the disk is full."""
    with path.open("wb") as file:
        if leave:
            found = os.statvfs(path)
            os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - leave)
            return
        try:
            while True:
                os.write(file.fileno(), bytes(1 << 16))
        except OSError:
            pass


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=120)

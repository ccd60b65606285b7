"""Runs the archiver and the program that takes backups as processes beside the broker, again when they end."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from leveret.broker.config.options import OPTIONS

#: Seconds before the first new start, and the longest pause; each failure doubles it.
_PAUSE: Final = 1.0
_PAUSE_MAX: Final = 60.0
#: Maximum bytes of a line.
_LINE_MAX: Final = 1 << 20


class Kind(NamedTuple):
    """A program that runs beside the broker.

    Attributes:
        name: What it is called in the log.
        module: Its module, and the command.
        option: The option with the path or URL to which it writes. This may contain a password, so it is given in the
            option's environment variable and no argument, which everybody could see.
        prefix: What it writes before each line.
        usual: What lines begin with that say that all is well.
        flags: Arguments that it always gets.
    """

    name: str
    module: tuple[str, str]
    option: str
    prefix: str
    usual: re.Pattern[str]
    flags: tuple[str, ...] = ("--until-eof",)


ARCHIVER: Final = Kind(
    "archiver",
    ("leveret.analytics.program", "archive"),
    "archive.url",
    "leveret-analytics archive: ",
    re.compile("manifest "),
)
BACKUP: Final = Kind(
    "backup",
    ("leveret.analytics.backup", "backup"),
    "backup.url",
    "leveret backup: ",
    re.compile(r"\d{4}-\d\d-\d\dT"),
    ("--until-eof", "--report"),
)


class SideProgram:
    """A program beside the broker.

    Args:
        kind: Which one.
        url: Where it writes to.
        arguments: Further command-line arguments.
        on_report: Called with each line that it writes to stdout; None to drop them.
        on_end: Called with what is logged when it has ended or could not be started.
    """

    def __init__(
        self,
        kind: Kind,
        url: str,
        arguments: Sequence[str],
        on_report: Callable[[bytes], object] | None = None,
        on_end: Callable[[str], object] | None = None,
    ) -> None:
        self._kind = kind
        self._on_report = on_report
        self._on_end = on_end
        self._log = logging.getLogger(f"leveret.{kind.name}")
        self._environment = {**os.environ, OPTIONS[kind.option].environment: url}
        self._arguments = arguments
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start it, and start it again whenever it has ended, until stop() is called."""
        self._task = asyncio.create_task(self._run())

    async def stop(self, seconds: float) -> None:
        """End it.

        Args:
            seconds: How long it may take to end in order; then it is killed, which loses nothing.
        """
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), seconds)
            except TimeoutError:
                await self.kill()

    async def kill(self) -> None:
        """Kill it."""
        if self._task is not None:
            self._task.cancel()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def _run(self) -> None:
        loop, pause = asyncio.get_running_loop(), _PAUSE
        while True:
            began = loop.time()
            try:
                said = f"has ended with status {await self._run_once()}"
            except OSError as error:
                said = f"cannot be started: {error}"
            if loop.time() - began > _PAUSE_MAX:
                pause = _PAUSE
            self._log.error("the %s %s; it is started again in %g s", self._kind.name, said, pause)
            if self._on_end is not None:
                self._on_end(f"the program {said}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX)

    async def _run_once(self) -> int:
        """Start it, and log what it says until it ends; return its status."""
        command = (sys.executable, "-m", *self._kind.module, *self._kind.flags, *self._arguments)
        # Nothing is written to its stdin: that ends with this process, however it ends.
        stdout = DEVNULL if self._on_report is None else PIPE
        process = self._process = await asyncio.create_subprocess_exec(
            *command, env=self._environment, stdin=PIPE, stdout=stdout, stderr=PIPE, limit=_LINE_MAX
        )
        assert process.stderr is not None
        reports = asyncio.create_task(self._read_reports(process))
        try:
            async for line in process.stderr:
                text = line.decode("utf-8", "replace").rstrip().removeprefix(self._kind.prefix)
                self._log.log(logging.DEBUG if self._kind.usual.match(text) else logging.WARNING, "%s", text)
            await reports
        finally:
            reports.cancel()
        return await process.wait()

    async def _read_reports(self, process: Process) -> None:
        if self._on_report is not None and process.stdout is not None:
            async for line in process.stdout:
                self._on_report(line)

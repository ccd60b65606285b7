"""Processes beside the broker: the archiver, the program that takes backups, and those that read for somebody."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import struct
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from leveret.broker.config.options import OPTIONS, Backup, Settings
from leveret.protocol.faults import precondition_failed
from leveret.storage.url_secrets import mask_url

#: Seconds before the first new start, and the longest pause; each failure doubles it.
_PAUSE: Final = 1.0
_PAUSE_MAX: Final = 60.0
#: Maximum bytes of a line.
_LINE_MAX: Final = 1 << 20
#: What is read of a backup before it is taken, at most, and the lengths of content header and body of a message.
_BUFFER_BYTES: Final = 4 << 20
_BUFFER_MESSAGES: Final = 1024
_LENGTHS: Final = struct.Struct(">II")


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


def environment_with(options: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that gets options, by name: everybody could see them as arguments."""
    return {**os.environ, **{OPTIONS[name].environment: value for name, value in options.items()}}


async def start_module(*command: str, environment: Mapping[str, str], stdin: int = DEVNULL) -> Process:
    """Start a module with arguments as a process, and return it; its output and its errors are to be read.

    Raises:
        OSError: It cannot be started.
    """
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", *command, env=environment, stdin=stdin, stdout=PIPE, stderr=PIPE
    )


def last_line(said: bytes) -> str:
    """Return the last line of what a program has written to stderr, which says why it failed; "" if there is none."""
    return said.decode("utf-8", "replace").strip().rpartition("\n")[2]


class SideProgram:
    """A program beside the broker.

    Args:
        kind: Which one.
        url: Where it writes to.
        arguments: Further command-line arguments.
        on_report: Called with each line that it writes to stdout; None to drop them.
        on_end: Called with what is logged when it has ended or could not be started.
        environment: Further options, by name, that it gets in their environment variables.
    """

    def __init__(
        self,
        kind: Kind,
        url: str,
        arguments: Sequence[str],
        on_report: Callable[[bytes], object] | None = None,
        on_end: Callable[[str], object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._kind = kind
        self._on_report = on_report
        self._on_end = on_end
        self._log = logging.getLogger(f"leveret.{kind.name}")
        self._environment = environment_with({kind.option: url, **(environment or {})})
        self._arguments = arguments
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, *more: str) -> None:
        """Start it, with more arguments, and start it again whenever it has ended, until stop() or kill() is called."""
        self._task = asyncio.create_task(self._run([*self._arguments, *more]))

    async def stop(self, seconds: float) -> None:
        """End it.

        Args:
            seconds: How long it may take to end in order; then it is killed, which loses nothing.
        """
        await self._end_task()
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), seconds)
            except TimeoutError:
                await self.kill()

    async def kill(self) -> None:
        """Kill it, which loses nothing; it may be started again."""
        await self._end_task()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def _end_task(self) -> None:
        """Cancel the task, and wait for its end: until a process has started, only the task knows of it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, arguments: Sequence[str]) -> None:
        loop, pause = asyncio.get_running_loop(), _PAUSE
        while True:
            began = loop.time()
            try:
                said = f"has ended with status {await self._run_once(arguments)}"
            except OSError as error:
                said = f"cannot be started: {error}"
            if loop.time() - began > _PAUSE_MAX:
                pause = _PAUSE
            self._log.error("the %s %s; it is started again in %g s", self._kind.name, said, pause)
            if self._on_end is not None:
                self._on_end(f"the program {said}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX)

    async def _run_once(self, arguments: Sequence[str]) -> int:
        """Start it, and log what it says until it ends; return its status."""
        command = (sys.executable, "-m", *self._kind.module, *self._kind.flags, *arguments)
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


def make_archiver(settings: Settings) -> SideProgram:
    """Return the program that copies messages and events to the archive of a configuration."""
    archive = settings.archive
    arguments = [f"--data-dir={settings.data_dir}", f"--interval={archive.interval}"]
    arguments += [f"--keep={archive.keep}s"] if archive.keep else []
    arguments += [f"--broker={archive.broker}"] if archive.broker else []
    arguments.append(f"--iceberg-namespace={archive.iceberg_namespace}")
    return SideProgram(ARCHIVER, archive.url, arguments, environment={"archive.iceberg": archive.iceberg})


def make_backup_taker(
    settings: Settings, on_report: Callable[[bytes], object], on_failure: Callable[[str], object]
) -> SideProgram:
    """Return the program that takes the backups of a data directory; in a cluster it gets `--turn=EPOCH/NUMBER/NODE`.

    Args:
        on_report: Called with each line that it writes about backups.
        on_failure: Called with what is logged when it has ended or could not be started.
    """
    backup = settings.backup
    arguments = [f"--data-dir={settings.data_dir}", f"--interval={backup.interval}", f"--keep={backup.keep}"]
    arguments += [f"--log-interval={backup.log_interval}", *_key_file(backup)]
    return SideProgram(BACKUP, backup.url, arguments, on_report, on_failure)


def _key_file(backup: Backup) -> list[str]:
    return [f"--key-file={backup.key_file}"] if backup.key_file else []


def shared_place(backup: Backup) -> str:
    """Return where the backups are, without passwords, if a standby may take them; "" if it may not.

    A directory is taken for one of this machine alone, unless `backup.take_on` says that all nodes have it.
    """
    is_directory = "://" not in backup.url or backup.url.startswith("file://")
    if backup.take_on == "leader" or (backup.take_on == "auto" and is_directory):
        return ""
    return mask_url(backup.url)


class BackupReader:
    """Reads the messages of a queue in a backup, as a process beside the broker; a job takes them.

    Args:
        backup: Where the backups are.
        at: The moment, as `leveret restore --at` takes it.
        skip: Number of messages to leave out at the beginning.

    Attributes:
        total: Number of messages, also of those that are left out; None before it is known.
        error: Why they cannot be read; "" if they can.
        is_at_end: Whether there are no more.
    """

    def __init__(self, backup: Backup, vhost: str, queue: str, at: str, skip: int) -> None:
        self._environment = environment_with({BACKUP.option: backup.url})
        self._arguments = [
            *_key_file(backup),
            f"--vhost={vhost}",
            f"--messages-of={queue}",
            f"--at={at}",
            f"--skip={skip}",
        ]
        self._found: deque[tuple[bytes, bytes]] = deque()
        self._bytes = 0
        self._has_room = asyncio.Event()
        self._has_total = asyncio.Event()
        self.total: int | None = None
        self.error = ""
        self.is_at_end = False
        self._task = asyncio.create_task(self._run())

    def take(self) -> tuple[bytes, bytes] | None:
        """Return content header and body of the next message; None if there is none yet, or at the end."""
        if not self._found:
            return None
        header, body = self._found.popleft()
        self._bytes -= len(body)
        self._has_room.set()
        return header, body

    async def count(self) -> int:
        """Return the number of messages.

        Raises:
            ChannelFault: PRECONDITION_FAILED (406): the backup cannot be read.
        """
        await self._has_total.wait()
        if self.total is None:
            raise precondition_failed(self.error)
        return self.total

    def close(self) -> None:
        """End the process."""
        self._task.cancel()

    async def _run(self) -> None:
        process: Process | None = None
        try:
            process = await start_module(BACKUP.module[0], "restore", *self._arguments, environment=self._environment)
            assert process.stdout is not None
            assert process.stderr is not None
            said = asyncio.create_task(process.stderr.read())
            with suppress(asyncio.IncompleteReadError):
                await self._read(process.stdout)
            line = last_line(await said)
            if await process.wait():
                self.error = line.removeprefix("leveret restore: ") or "the backup cannot be read"
            else:
                self.is_at_end = True
        except OSError as error:
            self.error = f"the backup cannot be read: {error}"
        finally:
            self._has_total.set()
            if process is not None and process.returncode is None:
                process.kill()

    async def _read(self, stream: asyncio.StreamReader) -> None:
        self.total = int(json.loads(await stream.readuntil())["total"])
        self._has_total.set()
        while True:
            header_bytes, body_bytes = _LENGTHS.unpack(await stream.readexactly(_LENGTHS.size))
            octets = await stream.readexactly(header_bytes + body_bytes)
            self._found.append((octets[:header_bytes], octets[header_bytes:]))
            self._bytes += body_bytes
            while self._bytes > _BUFFER_BYTES or len(self._found) > _BUFFER_MESSAGES:
                self._has_room.clear()
                await self._has_room.wait()

"""The tables that a user may read: as Iceberg tables of the broker's archive, and by SQL statements.

Processes beside the broker read them: archive and data directory.
"""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

from leveret.broker.auth.accounts import Accounts, User
from leveret.broker.auth.backend_interface import Resource, Unavailable
from leveret.broker.config.options import Archive, Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.scheduling.slices import in_slices
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.side_programs import environment_with, last_line, start_module
from leveret.broker.unfinished import answered

_LISTING_MODULE: Final = "leveret.analytics.iceberg.listing"
#: The catalog that is in the archive.
_IN_ARCHIVE: Final = "archive"
#: The table whose rows are not of queues.
_AUDIT: Final = "audit"
#: Seconds for which what was read is used again: an engine asks several times for a query.
_FRESH: Final = 2.0
#: Seconds that reading may take.
_TIMEOUT: Final = 60.0


class TablesUnreadableError(Exception):
    """The tables cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class ArchivedTable:
    """A table.

    Attributes:
        location: URL of its metadata.
        metadata: The metadata, as Iceberg's specification has them.
        queues: Virtual host and name, which may be None, of all queues that it may have rows of; None if they are not
            known.
    """

    location: str
    metadata: dict[str, Any]
    queues: list[tuple[str | None, str | None]] | None


class ArchivedTables:
    """Reads the tables.

    Args:
        vhosts: Names of all virtual hosts, as they are at any time.
        seconds: Returns the time in seconds since any moment.
    """

    def __init__(
        self, archive: Archive, accounts: Accounts, vhosts: Collection[str], seconds: Callable[[], float]
    ) -> None:
        self.namespace = archive.iceberg_namespace
        self._archive = archive
        self._accounts = accounts
        self._vhosts = vhosts
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._read_at = 0.0
        self._tables: dict[str, ArchivedTable] | None = None

    @property
    def is_there(self) -> bool:
        """Whether the archive has its own catalog."""
        return bool(self._archive.url) and self._archive.iceberg == _IN_ARCHIVE

    async def readable_by(self, user: User, has_audit: bool) -> dict[str, ArchivedTable]:
        """Return the tables by name, of which a user may read all rows: who gets a table can read all of its files.

        Args:
            has_audit: Whether the user may read the audit log.
        Raises:
            TablesUnreadableError: The archive cannot be read.
        """
        return {
            name: each
            for name, each in (await self._read()).items()
            if (has_audit if name == _AUDIT else self._may_read(user, each))
        }

    def _may_read(self, user: User, table: ArchivedTable) -> bool:
        if not table.queues:
            # There are too many queues to name them, or no rows: then the table shows older snapshots, of any queue.
            return self._reads_all(user, None)
        return all(
            self._accounts.allows(user, vhost, "read", "queue", queue)
            if vhost is not None and queue is not None
            else self._reads_all(user, vhost)
            for vhost, queue in table.queues
        )

    def _reads_all(self, user: User, vhost: str | None) -> bool:
        """Return whether a user may read all of a virtual host; None for all of them."""
        if user.rights is not None:
            return False
        return all(self._accounts.reads_all(user, each) for each in (self._vhosts if vhost is None else (vhost,)))

    async def _read(self) -> dict[str, ArchivedTable]:
        async with self._lock:
            if self._tables is None or self._seconds() > self._read_at + _FRESH:
                self._tables = await self._read_now()
                self._read_at = self._seconds()
            return self._tables

    async def _read_now(self) -> dict[str, ArchivedTable]:
        if find_spec("fsspec") is None:
            raise TablesUnreadableError("the tables need fsspec where the broker runs: pip install 'leveret[iceberg]'")
        environment = environment_with({"archive.url": self._archive.url})
        process = await start_module(_LISTING_MODULE, self.namespace, environment=environment)
        try:
            output, said = await asyncio.wait_for(process.communicate(), _TIMEOUT)
        except TimeoutError:
            raise TablesUnreadableError(f"the archive cannot be read within {_TIMEOUT:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise TablesUnreadableError(last_line(said) or "the archive cannot be read")
        return {
            name: ArchivedTable(
                each["location"],
                each["metadata"],
                None if each["queues"] is None else [(vhost, queue) for vhost, queue in each["queues"]],
            )
            for name, each in json.loads(output).items()
        }


# -- SQL statements, each in a process of its own -------------------------------------------------------------

FORMS: Final = ("json", "csv", "parquet")
_SQL_MODULE: Final = "leveret.analytics.sql_query"
#: Its exit status when the statement is wrong; see analytics/sql_query.py.
_WRONG_STATEMENT: Final = 2
_CHUNK: Final = 64 << 10
#: Seconds between two looks whether anybody still waits for the result.
_LOOK: Final = 0.25


class WrongStatementError(Exception):
    """The statement is wrong, may not be run, or takes too much; the text is for its author."""


class SqlUnavailableError(Exception):
    """No statement can be run now, or nobody waits for its result; the text says why."""


class SqlQueries:
    """Runs statements of users, who see the rows of the queues that they may read.

    Args:
        settings: Whose data directory and archive are read, with the limits of statements.
    """

    def __init__(self, settings: Settings, broker: Broker, accounts: Accounts) -> None:
        self._settings = settings
        self._broker = broker
        self._accounts = accounts
        self._running: set[RunningStatement] = set()

    async def run(self, user: User, statement: str, form: str, rows: int, has_audit: bool) -> RunningStatement:
        """Begin to run a statement. The caller closes it.

        Args:
            form: One of FORMS.
            rows: Maximum number of rows.
            has_audit: Whether the user may read the audit log.
        Raises:
            SqlUnavailableError: See there.
        """
        self._check_available()
        running = RunningStatement(self._settings.sql.timeout, self._running.discard)
        self._running.add(running)
        try:
            await running.start(
                {
                    "statement": statement,
                    "data_dir": str(self._settings.data_dir),
                    "archive": self._settings.archive.url,
                    "readable": await asyncio.wait_for(self._readable(user), self._settings.sql.timeout),
                    "has_audit": has_audit,
                    "form": form,
                    "rows": rows,
                    "memory": self._settings.sql.memory_limit,
                }
            )
        except TimeoutError:
            running.close()
            raise SqlUnavailableError("it takes too long to find out what the user may read") from None
        except BaseException:
            running.close()
            raise
        return running

    def _check_available(self) -> None:
        most = self._settings.sql.concurrency
        if not most:
            raise SqlUnavailableError("SQL is switched off: sql.concurrency is 0")
        if find_spec("duckdb") is None or find_spec("pyarrow") is None:
            raise SqlUnavailableError("SQL needs DuckDB where the broker runs: pip install 'leveret[sql]'")
        if len(self._running) >= most:
            raise SqlUnavailableError(f"{most} statements are running already (sql.concurrency); try again later")

    async def _readable(self, user: User) -> dict[str, list[str] | None]:
        """Return the names that a user may read, by virtual host; None for all, also those of deleted queues."""
        found: dict[str, list[str] | None] = {}
        for vhost in list(self._broker.vhosts.values()):
            if self._accounts.reads_all(user, vhost.name):
                found[vhost.name] = None
            elif await _is_true(partial(self._accounts.enters, user, vhost.name)):
                found[vhost.name] = await self._readable_in(vhost, user)
        return found

    async def _readable_in(self, vhost: VirtualHost, user: User) -> list[str]:
        """Return the names of what a user may read: queue and exchange, where both have the name."""
        names: set[str] = set()
        refused: set[str] = set()
        here: list[tuple[Resource, str]] = [("queue", name) for name in vhost.topology.queues]
        here += [("exchange", name) for name in vhost.topology.exchanges]
        async for resource, name in in_slices(here):
            may_read = partial(self._accounts.allows, user, vhost.name, "read", resource, name)
            (names if await _is_true(may_read) else refused).add(name)
        return list(names - refused)


async def _is_true(check: Callable[[], bool]) -> bool:
    """Return the answer of a check of permissions, after another server was asked if need be; False if it cannot be."""
    try:
        return await answered(check)
    except Unavailable:
        return False


class RunningStatement:
    """A statement that runs, in a process of its own.

    Args:
        seconds: How long it may run.
        on_close: Called when it has been closed.
    """

    def __init__(self, seconds: int, on_close: Callable[[RunningStatement], object]) -> None:
        self._seconds = seconds
        self._on_close = on_close
        self._deadline = 0.0
        self._process: Process | None = None

    async def start(self, request: dict[str, Any]) -> None:
        """Start the process.

        Args:
            request: See leveret.analytics.sql_query.Request.
        Raises:
            SqlUnavailableError: It cannot be started.
        """
        self._deadline = asyncio.get_running_loop().time() + self._seconds
        # Nothing of the broker's configuration, which may have passwords.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LEVERET_")}
        try:
            self._process = process = await start_module(_SQL_MODULE, environment=environment, stdin=PIPE)
        except OSError as error:
            raise SqlUnavailableError(f"the statement's process cannot be started: {error}") from error
        assert process.stdin is not None
        # Its stdin stays open: it ends when this process does, however that ends.
        process.stdin.write(json.dumps(request).encode() + b"\n")

    async def read(self, is_wanted: Callable[[], bool]) -> bytes:
        """Return the next piece of the result, b"" at its end.

        Args:
            is_wanted: Returns whether anybody still waits for the result.
        Raises:
            WrongStatementError, SqlUnavailableError: See there.
        """
        process, loop = self._process, asyncio.get_running_loop()
        assert process is not None
        assert process.stdout is not None
        reading = loop.create_task(process.stdout.read(_CHUNK))
        try:
            while not reading.done():
                await asyncio.wait((reading,), timeout=_LOOK)
                if not is_wanted():
                    raise SqlUnavailableError("nobody waits for the result any more")
                if loop.time() > self._deadline:
                    raise WrongStatementError(
                        f"the statement took longer than {self._seconds} s (sql.timeout); select fewer rows or columns,"
                        " or name the queue"
                    )
        finally:
            reading.cancel()
        piece = reading.result()
        if not piece:
            await _check(process)
        return piece

    def close(self) -> None:
        """End it, if it has not ended. Further calls do nothing."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        self._on_close(self)


async def _check(process: Process) -> None:
    """Raise what a process has said if it has failed."""
    assert process.stderr is not None
    line = last_line(await process.stderr.read())
    status = await process.wait()
    if status == _WRONG_STATEMENT and line:
        raise WrongStatementError(line)
    if status:
        # Without a line it was killed by the system, for example, as memory is short.
        raise SqlUnavailableError(line or f"the statement's process ended with status {status}")

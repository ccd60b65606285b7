"""Runs SQL statements over the tables of the data directory and the archive, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

from leveret.broker.auth.accounts import Accounts, User
from leveret.broker.auth.backends.interface import Resource, Unavailable
from leveret.broker.config.options import Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.scheduling.slices import in_slices
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.side_programs import last_line, start_module
from leveret.broker.unfinished import answered

FORMS: Final = ("json", "csv", "parquet")
_MODULE: Final = "leveret.analytics.sql_query"
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
            self._process = process = await start_module(_MODULE, environment=environment, stdin=PIPE)
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

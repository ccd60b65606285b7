"""The Iceberg tables in the broker's archive, read by a process beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from leveret.broker.auth.accounts import Accounts, User
from leveret.broker.config.options import Archive
from leveret.broker.side_programs import environment_with, last_line, start_module

_MODULE: Final = "leveret.analytics.iceberg.listing"
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
            # They are too many to be named, or there are no rows, so that older snapshots count.
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
        process = await start_module(_MODULE, self.namespace, environment=environment)
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

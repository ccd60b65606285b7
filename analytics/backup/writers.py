"""Who writes to a backup repository: one process at a time, and in a cluster the one that the leader has chosen.

Whoever begins to write claims the repository: it makes the next file in writers/, which nobody can make twice. Before
each manifest it looks whether it still has the last claim. Should it write one all the same, because it was paused in
between, the manifest says by which claim it was written, and the later claim's counts.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from socket import gethostname
from typing import Any, Final, NamedTuple

from leveret.analytics.backup.layout import BackupError, BackupRefusedError
from leveret.analytics.backup.repository import Repository
from leveret.analytics.errors import AnalyticsError
from leveret.storage.directory.directory_format import FORMAT_FILE

WRITERS: Final = "writers"
#: Claims that are kept.
_KEPT: Final = 20


class Turn(NamedTuple):
    """A leader's choice of the node that takes the backups of its cluster.

    Attributes:
        epoch: The leader's epoch.
        number: Its number among the leader's choices.
        node: Name of the node.
    """

    epoch: int
    number: int
    node: str


def parse_turn(text: str) -> Turn:
    """Parse ``EPOCH/NUMBER/NODE``.

    Raises:
        AnalyticsError: It is not of this form.
    """
    epoch, _, rest = text.partition("/")
    number, _, node = rest.partition("/")
    if not (epoch.isdecimal() and number.isdecimal() and node):
        raise AnalyticsError(f"'{text}' is no turn of a cluster; write EPOCH/NUMBER/NODE")
    return Turn(int(epoch), int(number), node)


class _Claimed(NamedTuple):
    """What the file of a claim says; `inode` is that of the file FORMAT, so that a copy of a directory is another."""

    place: str
    inode: int
    turn: Turn | None

    @property
    def shown(self) -> str:
        return self.place if self.turn is None else f"node {self.turn.node} ({self.place})"

    @property
    def lineage(self) -> tuple[str, int, int]:
        """What two claims have in common if the second one goes on with the files of the first."""
        return self.place, self.inode, 0 if self.turn is None else self.turn.epoch


class Claim:
    """The claim of a process to write to a repository.

    Args:
        repository: The repository.
        data_dir: The data directory whose backups are written.
        turn: The leader's choice of this node; None without a cluster.
    Raises:
        BackupRefusedError: Another one has taken over, or the leader has chosen another node.
        AnalyticsError: The repository cannot be read or written.

    Attributes:
        number: Its number; the next one's is higher.
        is_other: Whether the claim before was that of another directory, or of another leader's time.
    """

    def __init__(self, repository: Repository, data_dir: str, turn: Turn | None) -> None:
        self._repository = repository
        place = f"{gethostname()}:{os.path.abspath(data_dir)}"
        mine = _Claimed(place, os.stat(f"{data_dir}/{FORMAT_FILE}").st_ino, turn)
        self.number = 0
        while not self.number:
            known = {number: self._read(number) for number in self._numbers()[-_KEPT:]}
            last = max(known, default=0)
            self._refuse(mine, known, last)
            self.is_other = not last or known[last].lineage != mine.lineage
            if last and known[last] == mine:
                self.number = last
                break
            with suppress(FileExistsError):
                repository.create(_path(last + 1), _pack(mine))
                self.number = last + 1
        for number in self._numbers()[:-_KEPT]:
            repository.remove(_path(number))

    def check(self) -> None:
        """Look whether this is the last claim.

        Raises:
            BackupRefusedError: It is not.
            AnalyticsError: The repository cannot be read.
        """
        last = max(self._numbers(), default=0)
        if last > self.number:
            raise BackupRefusedError(f"{self._read(last).shown} takes backups in {self._repository.shown} now")

    def _numbers(self) -> list[int]:
        return sorted(int(name) for name in self._repository.names(WRITERS) if name.isdecimal())

    def _read(self, number: int) -> _Claimed:
        where = f"{self._repository.shown}/{_path(number)}"
        try:
            found: dict[str, Any] = json.loads(self._repository.read_file(_path(number)) or b"")
            turn = found["turn"]
            return _Claimed(str(found["place"]), int(found["inode"]), None if turn is None else Turn(*turn))
        except (ValueError, TypeError, KeyError) as error:
            raise BackupError(f"{where} is damaged; delete it if only one process takes backups there") from error

    def _refuse(self, mine: _Claimed, known: dict[int, _Claimed], last: int) -> None:
        where = self._repository.shown
        if mine.turn is not None:
            newest = max((each.turn for each in known.values() if each.turn is not None), default=mine.turn)
            if newest[:2] > mine.turn[:2] or (newest[:2] == mine.turn[:2] and newest.node != mine.turn.node):
                raise BackupRefusedError(f"node {newest.node} takes backups in {where} now")
        elif last and known[last][:2] != mine[:2] and mine[:2] in [each[:2] for each in known.values()]:
            raise BackupRefusedError(
                f"{known[last].shown} has taken over the backups in {where}; each data directory needs a place of its "
                f"own. If that one is gone, delete {where}/{WRITERS}"
            )


def _path(number: int) -> str:
    return f"{WRITERS}/{number:010d}"


def _pack(claimed: _Claimed) -> bytes:
    fields = {"place": claimed.place, "inode": claimed.inode, "turn": claimed.turn, "since": time.time_ns() // 1000}
    return json.dumps(fields).encode() + b"\n"

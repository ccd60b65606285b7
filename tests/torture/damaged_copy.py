"""A broker that is started on a copy of its directory in which one file is damaged."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from tests.crash.broker_load import Client, number_of
from tests.crash.damage_table import boundaries
from tests.crash.ledger import Ledger
from tests.crash.whole_directory import REFUSED, kind_of
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import ChannelClosed, Connection

#: Files that SQLite keeps while the definitions are open, those that are not finished, and what was cut off as damaged.
_TEMPORARY: Final = ("-wal", "-shm", "-journal", ".tmp", ".bad")
#: Without these there is nothing to damage, or it takes too long to look for it.
_LEFT_OUT: Final = frozenset({"ballast", "lock", "trash"})


class OtherClient(Protocol):
    """A client of what is not a queue with a ledger."""

    def missing(self, process: LeveretProcess) -> int:
        """Return how many confirmed messages are missing."""


def start_on_damaged_copy(
    directory: Path, rng: random.Random, clients: Iterable[Client], others: Iterable[OtherClient]
) -> str:
    """Damage a file of a copy of a directory, and return the kind of the file and what a broker made of it."""
    copy = directory / "damaged"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory / "data", copy / "data")
    by_kind: dict[str, list[Path]] = defaultdict(list)
    for path in sorted((copy / "data").rglob("*")):
        name = str(path.relative_to(copy / "data"))
        if path.is_file() and not name.endswith(_TEMPORARY) and path.stat().st_size:
            by_kind[kind_of(name)].append(path)
    kind = rng.choice(sorted(by_kind.keys() - _LEFT_OUT))
    path = rng.choice(by_kind[kind])
    is_told = _damage(path, kind, rng)
    outcome = _start(copy, kind, is_told, clients, others)
    shutil.rmtree(copy)
    return f"{kind}: {outcome}"


def _damage(path: Path, kind: str, rng: random.Random) -> bool:
    """Damage a file; return whether its content tells so."""
    octets = bytearray(path.read_bytes())
    at = rng.randrange(len(octets))
    if rng.random() < 0.5:
        octets[at] ^= 1 << rng.randrange(8)
        path.write_bytes(octets)
        return True
    is_boundary = at in boundaries(kind, bytes(octets))
    path.write_bytes(octets[:at])
    return not is_boundary


def _start(copy: Path, kind: str, is_told: bool, clients: Iterable[Client], others: Iterable[OtherClient]) -> str:
    refusal, process = "", None
    try:
        process = LeveretProcess(copy, settings={"storage.segment_size": 65_536, "log_level": "warning"})
    except RuntimeError as error:
        refusal = str(error)
    if process is None:
        assert kind in REFUSED, f"a damaged {kind} is a reason not to start: {refusal}"
        # Others may tell what was found before, such as messages that the redo log had.
        said = [line for line in refusal.splitlines()[1:] if "[warning]" not in line]
        assert len(said) == 1, f"refused in more than one line: {refusal}"
        return "refused"
    with process:
        with Connection(process.url, timeout=120) as connection:
            ledgers = [ledger for client in clients for ledger in (client.letters, *client.ledgers.values())]
            missing = sum(len(_missing(connection, ledger)) for ledger in ledgers)
        missing += sum(other.missing(process) for other in others)
        log = process.log_text()
    assert "Traceback" not in log, f"a damaged {kind} makes a traceback:\n{log}"
    if not missing:
        return "nothing lost"
    assert log or not is_told, f"{missing} messages are missing because of a damaged {kind}, and nothing says so"
    return "one message lost" if missing == 1 else "more messages lost"


def _missing(connection: Connection, ledger: Ledger) -> set[int]:
    """Return the numbers of messages that a queue should have."""
    channel = connection.channel()
    expected = {number for number, kept in ledger.kept.items() if kept.survives and kept.confirmed and not kept.leaving}
    try:
        channel.queue_declare(ledger.queue, passive=True)
    except ChannelClosed:
        return expected
    while (delivery := channel.get(ledger.queue, no_ack=True)) is not None:
        expected.discard(number_of(delivery))
    channel.close()
    return expected

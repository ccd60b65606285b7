"""Details of events: said once, bounded, and left out when they cannot be written or read."""

from __future__ import annotations

import errno
from zlib import crc32

import pytest

from leveret.storage.event_format import EventKind, details_name, read_details
from leveret.storage.event_log import EventLog, EventPosition, details_files, event_files, read_events
from tests.support.simulated_files import SimulatedFiles

DIRECTORY, STORE_ID = "/data/events", bytes(range(16))


class Publish:
    """What a publisher has sent."""

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id

    def texts(self, with_id: bool) -> dict[str, str]:
        return {"routing_key": "k", **({"message_id": self._message_id} if with_id else {})}


class Files(SimulatedFiles):
    """Files of which those with details cannot be written at times."""

    is_full = False

    def append(self, handle: int, octets: bytes) -> int:
        if self.is_full and b'{"routing_key"' in octets:
            raise OSError(errno.ENOSPC, "no space")
        return super().append(handle, octets)


class Log:
    """An event log of a queue, in files of a few events.

    Attributes:
        now: Its time in microseconds.
    """

    def __init__(self, file_bytes: int = 1 << 20) -> None:
        self.now = 1_000_000
        self.files = Files()
        self.files.make_directory(DIRECTORY)
        self.log = EventLog(self.files, DIRECTORY, STORE_ID, lambda: self.now, file_bytes)

    def refuse(self, *ids: str, flush: bool = True) -> None:
        """Refuse messages with these ids."""
        for each in ids:
            self.log.add_described(7, 0, 1, EventKind.REFUSED, 0, 5, Publish(each))
        if flush:
            self.log.flush()

    def found(self) -> list[tuple[int, dict[str, str]]]:
        """The number of messages of each event, and what is known of them."""
        (file,) = event_files(self.files, DIRECTORY)
        octets = self.files.read_all(f"{DIRECTORY}/{details_name(file)}") or b""
        events = read_events(self.files, DIRECTORY, STORE_ID, EventPosition(0, 0))
        return [
            (event.length, read_details(octets, event.seq - 1, crc32(STORE_ID)))
            for event in events
            if event is not None
        ]


def test_alike_messages_are_one_event_and_one_record() -> None:
    log = Log()
    log.refuse("a", "a", "b", "a")
    log.refuse("a")
    a, b = ({"routing_key": "k", "message_id": each} for each in "ab")
    assert log.found() == [(3, a), (1, b), (1, a)]
    octets = log.files.read_all(f"{DIRECTORY}/{details_name(details_files(log.files, DIRECTORY)[0])}") or b""
    assert (octets.count(b'"a"'), octets.count(b'"b"')) == (1, 1)


def test_the_ids_of_very_many_messages_are_left_out() -> None:
    log = Log()
    log.refuse(*map(str, range(5000)))
    found = log.found()
    assert len(found) == 1001
    assert found[-1] == (4000, {"routing_key": "k"})
    log.now += 1_000_000
    log.refuse("later")
    assert log.found()[-1] == (1, {"routing_key": "k", "message_id": "later"})


def test_what_cannot_be_written_is_left_out() -> None:
    log = Log()
    log.refuse("a")
    log.files.is_full = True
    log.refuse("a", "b")
    log.files.is_full = False
    log.refuse("c")
    a, c = ({"routing_key": "k", "message_id": each} for each in "ac")
    assert log.found() == [(1, a), (1, a), (1, {}), (1, c)]


@pytest.mark.parametrize("at", [0, 5, 12])
def test_damage_is_noticed(at: int) -> None:
    log = Log()
    log.refuse("a")
    (file,) = details_files(log.files, DIRECTORY)
    octets = bytearray(log.files.read_all(f"{DIRECTORY}/{details_name(file)}") or b"")
    octets[at] ^= 1
    assert read_details(bytes(octets), 0, crc32(STORE_ID)) == {}
    assert read_details(bytes(octets), 1 << 40, crc32(STORE_ID)) == {}


def test_each_file_of_the_log_has_details_of_its_own() -> None:
    log = Log(file_bytes=100)
    for each in "abc":
        log.now += 1_000_000
        log.refuse(each, each + each)
    assert event_files(log.files, DIRECTORY) == details_files(log.files, DIRECTORY)
    assert len(details_files(log.files, DIRECTORY)) == 3

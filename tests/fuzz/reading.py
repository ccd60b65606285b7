"""Reads mutated input with the codec and prints what comes of it: `python -m tests.fuzz.reading SEED CASES`.

It prints a line per case, and they are the same whether the codec is compiled or not. The last line has the form of the
modules, and how many KiB the process grew in the second half.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from leveret import compilation
from leveret.protocol.faults import AmqpFault
from leveret.protocol.field_table import MalformedTable, decode_table, encode_table, normalize, plain_values, sort_table
from leveret.protocol.frame_reader import FrameReader
from leveret.protocol.header_scan import scan_header
from leveret.protocol.properties import Properties
from leveret.storage.clock import AscendingClock, Clock
from leveret.storage.message import Envelope, Message
from leveret.storage.seq_ranges import SeqRanges
from leveret.storage.stores.segment_store import SegmentStore
from tests.fuzz.mutations import MUTATIONS
from tests.fuzz.sessions import ALL_PROPERTIES, ALL_TYPES, SESSIONS, Step, publish
from tests.support import content, tables
from tests.support.reference_reader import flatten

#: What mutations start from: the steps of all sessions, and runs of messages.
_STEPS: Final[list[Step]] = [
    *(step for session in SESSIONS.values() for step in session("q")),
    [frame for number in range(6) for frame in publish(1, "x", "k", bytes((number,)) * 9)],
    [frame for number in range(6) for frame in publish(1, "x", "k", b"body", message_id=str(number))],
    [frame for number in range(6) for frame in publish(1, "x", "k", b"b" * number, headers=ALL_TYPES[number:])],
]
_TABLE: Final = tables.table_body(ALL_TYPES)
_HEADER: Final = content.header(5, content.properties(**ALL_PROPERTIES))
_PLAIN_HEADER: Final = content.header(5, content.properties(headers=ALL_TYPES, delivery_mode=2, priority=9))


def main() -> None:
    """Read the cases that follow from a seed."""
    random, cases = Random(sys.argv[1]), int(sys.argv[2])
    grown = 0
    for number in range(cases):
        if number == cases // 2:
            grown = _resident()
        kind = random.choice((_read_frames, _read_frames, _read_table, _read_header, _use_store))
        outcome = repr(kind(random))
        sys.stdout.write(f"{kind.__name__} {hashlib.blake2b(outcome.encode(), digest_size=8).hexdigest()}\n")
    sys.stdout.write(f"{compilation.form()} {_resident() - grown}\n")


def _resident() -> int:
    """Return the resident size of this process in KiB."""
    return int(Path("/proc/self/status").read_text("utf-8").partition("VmRSS:")[2].split()[0])


def _read_frames(random: Random) -> Any:
    frames = [frame for _ in range(random.randrange(1, 4)) for frame in random.choice(_STEPS)]
    for _ in range(random.randrange(4)):
        if all(frames):
            random.choice(MUTATIONS)(frames, random)
    octets = b"".join(frames)
    reader = FrameReader(random.choice((4, 1000, 1 << 29)))
    reader.frame_max, reader.stepwise = random.choice((4096, 131_072)), random.random() < 0.2
    found = []
    while octets:
        size = random.choice((1, 7, 20, len(octets)))
        reader.receive(octets[:size])
        octets = octets[size:]
        while events := reader.events():
            found += flatten(events)
    return found, reader.is_inside_content()


def _spoil(octets: bytes, random: Random) -> bytes:
    spoilt = bytearray(octets)
    for _ in range(random.randrange(4)):
        spoilt[random.randrange(len(spoilt))] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
    return bytes(spoilt[: random.choice((len(spoilt), len(spoilt), random.randrange(len(spoilt)))) or None])


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or what it raises."""
    try:
        return function(*arguments)
    except (MalformedTable, AmqpFault) as error:
        return type(error).__name__, str(error)
    except (ValueError, TypeError, IndexError, ArithmeticError) as error:
        return type(error).__name__


def _read_table(random: Random) -> Any:
    octets = _spoil(_TABLE, random)
    table = _attempt(decode_table, octets, random.choice((1, 2, 128)))
    if table and isinstance(table[0], tuple):
        return table, encode_table(table), normalize(table), plain_values(table), sort_table(table)
    return table


def _read_header(random: Random) -> Any:
    payload = _spoil(random.choice((_HEADER, _PLAIN_HEADER)), random)
    properties = _attempt(Properties, payload)
    if not isinstance(properties, Properties):
        return scan_header(payload), properties
    changed = properties.replaced({0x2000: None, 0x0100: b"\x011"})
    return scan_header(payload), _attempt(properties.as_dict), changed


def _use_store(random: Random) -> Any:
    return list(_store_steps(random, SegmentStore(AscendingClock(Clock()))))


def _store_steps(random: Random, store: SegmentStore) -> Iterator[Any]:
    """Use a store in any order, with sequence numbers that do not fit into 64 bits among its arguments."""
    taken, ranges = [], SeqRanges()
    for _ in range(20):
        step = random.randrange(5)
        if step == 0:
            count, size = random.randrange(1, 5), random.randrange(4)
            envelope = Envelope(b"\0\0", b"", delivery_count=random.choice((None, 1)))
            store.append([Message(envelope, bytes(size)) for _ in range(count)], count * size)
        elif step == 1:
            entries, size = store.take(random.choice((1, 3, 1 << 62, 1 << 70)), random.choice((1, 1 << 40, 1 << 80)))
            taken += entries
            yield [(seq, len(message.body), redelivered) for seq, message, redelivered in entries], size
        elif step == 2 and taken:
            store.requeue(taken[:2])
            del taken[:2]
        elif step == 3 and taken:
            store.settle(taken[:1])
            del taken[:1]
        else:
            seq = random.choice((1, 2, 3, 1 << 62, 1 << 64, 1 << 100)) + random.randrange(3)
            ranges.add(seq, seq + 2)
            yield list(ranges), store.drop(1, 1 << 70)
        yield store.ready_count, store.ready_bytes, store.taken_count


if __name__ == "__main__":
    main()

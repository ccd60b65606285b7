"""Damages every file of a small data directory in every way, and prints by kind of file what a broker made of it.

python -m tests.crash.damage_table            every byte flipped, every file cut at every length: an hour or two
python -m tests.crash.damage_table --step 20  every 20th
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leveret.storage.event_format import EVENT_BYTES
from leveret.storage.format import SEGMENT_HEADER_BYTES, scan, unpack_segment_header
from tests.crash.whole_directory import REFUSED, Files, Found, Scene, kind_of, look, make_scene

#: Kinds of files that are large, and of which only so many bytes are tried.
_SAMPLES: Final = {"ballast": 8, "definitions": 600, "copy of the definitions": 100}
_ENDS: Final = ("killed", "stopped")
#: Kinds of files that have messages, or without which messages cannot be read.
_HAVE_MESSAGES: Final = frozenset({"segment", "QUEUE.json", "definitions"})


@dataclass
class Row:
    """What became of the damaged files of a kind."""

    tried: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def damages(path: str, octets: bytes, step: int, first: int) -> Iterator[tuple[str, bytes | None]]:
    """Return descriptions of damages, and the damaged contents; None for a missing file."""
    size = len(octets)
    places = range(2 * size)
    if (sample := _SAMPLES.get(kind_of(path))) is not None and sample < len(places):
        places = range(0, 2 * size, 2 * size // sample)
    if not first:
        yield f"{path} missing", None
    for place in places[first::step]:
        if place < size:
            yield f"{path} cut at {place}", octets[:place]
        else:
            at = place - size
            flipped = bytes((octets[at] ^ 1 << at % 8,))
            yield f"{path} flipped at {at}", octets[:at] + flipped + octets[at + 1 :]


def judge(scene: Scene, kind: str, found: Found, is_boundary: bool) -> tuple[str, list[str]]:
    """Return the outcome of a damage, and what should not have been."""
    wrong = []
    if found.tracebacks:
        wrong.append(f"{found.tracebacks} tracebacks in the log")
    if found.refusal:
        if kind not in REFUSED:
            wrong.append(f"refused: {found.refusal}")
        if "\n" in found.refusal:
            wrong.append("refused in more than one line")
        return "refused", wrong
    changed = {each for messages in found.messages.values() for each in messages} - scene.written
    if changed:
        wrong.append(f"changed messages: {changed}")
    missing = sum((messages - found.messages.get(name, Counter())).total() for name, messages in scene.messages.items())
    more = sum((messages - scene.messages.get(name, Counter())).total() for name, messages in found.messages.items())
    if missing:
        if kind not in _HAVE_MESSAGES:
            wrong.append(f"{missing} messages missing")
        elif not (found.lines or is_boundary):
            wrong.append(f"{missing} messages missing, and nothing says so")
    if missing:
        return ("1 message lost" if missing == 1 else "more messages lost") + ", reported", wrong
    if more:
        if not (found.lines or is_boundary):
            wrong.append(f"{more} settled messages came back, and nothing says so")
        return "settled messages came back", wrong
    return "repaired, reported" if found.lines else "nothing lost", wrong


def boundaries(kind: str, octets: bytes) -> set[int]:
    """Return the lengths at which a file that grows ends between two records."""
    if kind == "segment" and (head := unpack_segment_header(octets)) is not None:
        return {0, SEGMENT_HEADER_BYTES, *scan(octets, head.salt, head.first_seq).offsets}
    if kind == "event log":
        # With a part of its head it is a file that was just made.
        return {*range(EVENT_BYTES), *range(0, len(octets), EVENT_BYTES)}
    return set()


async def examine(scene: Scene, directory: Path, step: int, first: int) -> dict[str, Row]:
    """Try damages of all files; for the last two arguments see damages()."""
    rows: dict[str, Row] = defaultdict(Row)
    for number, (path, octets) in enumerate(sorted(scene.files.items())):
        kind = kind_of(path)
        row = rows[kind]
        ends = boundaries(kind, octets)
        for what, contents in damages(path, octets, step, (first + number) % step):
            files: Files = {name: each for name, each in scene.files.items() if name != path}
            if contents is not None:
                files[path] = contents
            found = await look(directory, files)
            outcome, wrong = judge(scene, kind, found, contents is not None and len(contents) in ends)
            row.tried += 1
            row.outcomes[outcome] += 1
            row.wrong += [f"{what}: {each}" for each in wrong]
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if something should not have been."""
    parser = argparse.ArgumentParser(prog="tests.crash.damage_table", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--step", type=int, default=1, help="try every so manieth damage; default: 1")
    parser.add_argument("--only", choices=_ENDS, help="damage only what such a broker has left")
    given = parser.parse_args(arguments)
    total = 0
    for end in [given.only] if given.only else _ENDS:
        stop = end == "stopped"
        with tempfile.TemporaryDirectory() as temporary:
            scene = make_scene(Path(temporary), stop)
            rows = asyncio.run(examine(scene, Path(temporary) / "damaged", given.step, 0))
        print(f"\nA broker that was {end}:\n")
        for kind, row in rows.items():
            outcomes = ", ".join(f"{outcome} {count}" for outcome, count in row.outcomes.most_common())
            print(f"{kind:26} {row.tried:6}  {outcomes}")
            for each in row.wrong:
                print(f"    WRONG: {each}")
            total += len(row.wrong)
    return total > 0


if __name__ == "__main__":
    sys.exit(main())

"""What a backup repository keeps, and what the names and forms of its files say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.analytics.backup.layout import (
    BackupError,
    BackupName,
    Manifest,
    StoredFile,
    pack_manifest,
    parse_name,
    unpack_manifest,
)
from leveret.analytics.backup.listing import Keep, clean_up, parse_keep, superfluous
from leveret.analytics.backup.moments import spans
from leveret.analytics.backup.repository import Repository

HOUR = 3600 * 1_000_000
STORE = bytes(range(16))

names = st.builds(BackupName, st.integers(1, 9_999_999_999), st.integers(10**15, 10**16), st.booleans())
files = st.builds(
    StoredFile,
    st.integers(0, 1 << 60),
    st.integers(0, (1 << 32) - 1),
    st.lists(st.tuples(st.text(max_size=8), st.integers(0, 1 << 30)), max_size=3).map(tuple),
)


@given(names, st.dictionaries(st.text(max_size=20), st.none() | files, max_size=5), st.data())
def test_a_manifest_is_what_was_packed_or_damaged(
    name: BackupName, content: dict[str, StoredFile | None], data: st.DataObject
) -> None:
    definitions = tuple((at, file) for at, file in enumerate(content.values()) if file is not None)
    manifest = Manifest(name, content, {"sent": len(content), "seconds": 0.5}, definitions)
    octets = pack_manifest(manifest)
    assert unpack_manifest(octets, "m") == manifest
    assert parse_name(name.path.rpartition("/")[2]) == name
    # But in the second byte: what zlib notes there of its level may be another one, and the content is the same.
    at = data.draw(st.sampled_from([0, *range(2, len(octets))]))
    damaged = octets[:at] + bytes([octets[at] ^ data.draw(st.integers(1, 255))]) + octets[at + 1 :]
    with pytest.raises(BackupError, match=r"m is damaged|m was written by a newer version"):
        unpack_manifest(damaged, "m")


def backups(*found: tuple[int, float, str]) -> list[BackupName]:
    """Backups of number, age in hours before 100 days, and kind."""
    return [BackupName(number, int(2400 * HOUR - age * HOUR), kind == "full") for number, age, kind in found]


def test_all_are_kept_for_a_while_and_then_the_first_of_each_day() -> None:
    there = backups(
        *((1, 97, "full"), (2, 96.5, "log"), (3, 95, "full"), (4, 73, "full"), (5, 50, "full")),
        *((6, 49, "log"), (7, 26, "full"), (8, 25, "log"), (9, 10, "full"), (10, 9, "log")),
    )
    # Days end at 96, 72, 48 and 24 hours ago. Number 7 is what the log up to 24 hours ago builds on.
    gone = superfluous(there, Keep(24 * HOUR, 96 * HOUR), 2400 * HOUR)
    assert [each.number for each in gone] == [1, 2, 4, 6]
    gone = superfluous(there, Keep(24 * HOUR, 24 * HOUR), 2400 * HOUR)
    assert [each.number for each in gone] == [1, 2, 3, 4, 5, 6]
    # However old, the newest ones stay.
    gone = superfluous(there, Keep(HOUR, HOUR), 4800 * HOUR)
    assert [each.number for each in gone] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert parse_keep("24h, 30d") == Keep(24 * HOUR, 720 * HOUR)


def test_times_can_be_restored_between_backups_that_follow_each_other() -> None:
    there = backups((1, 9, "full"), (4, 8, "full"), (5, 7, "log"), (6, 6, "full"), (9, 5, "full"))
    assert spans(there) == [
        (there[0].time, there[0].time),
        (there[1].time, there[3].time),
        (there[4].time, there[4].time),
    ]


def test_what_no_backup_needs_is_deleted(tmp_path: Path) -> None:
    repository = Repository(str(tmp_path))
    repository.make(STORE)
    parts = [repository.put(b"%d" % number) for number in range(4)]
    file = [StoredFile(1, 0, (part,)) for part in parts]
    repository.write_manifest(Manifest(BackupName(1, 1 * HOUR, True), {"a": file[0], "b": file[1]}))
    repository.write_manifest(Manifest(BackupName(2, 2 * HOUR, False), {"a": None, "c": file[2]}))
    assert repository.files_at(repository.backups()[1]) == {"b": file[1], "c": file[2]}
    repository.write_manifest(Manifest(BackupName(3, 30 * HOUR, True), {"c": file[2]}))
    assert clean_up(repository, Keep(HOUR, HOUR), 40 * HOUR) == 2
    assert repository.files_at(repository.backups()[0]) == {"c": file[2]}
    assert repository.get(*parts[2]) == b"2"
    for part in (parts[0], parts[1], parts[3]):
        with pytest.raises(BackupError, match="is damaged or missing"):
            repository.get(*part)


def test_a_manifest_that_others_build_on_must_be_there(tmp_path: Path) -> None:
    repository = Repository(str(tmp_path))
    repository.make(STORE)
    for number, is_full in ((1, True), (2, False), (3, False)):
        repository.write_manifest(Manifest(BackupName(number, number * HOUR, is_full), {}))
    first, second, third = repository.backups()
    repository.delete([second])
    with pytest.raises(BackupError, match="a manifest that it builds on is missing"):
        repository.files_at(third)
    assert repository.files_at(first) == {}

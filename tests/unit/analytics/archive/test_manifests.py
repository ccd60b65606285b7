from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.layout import FORMAT, manifest_path
from leveret.analytics.archive.manifests import (
    DataFile,
    Manifest,
    ManifestLog,
    pack_manifest,
    read_manifests,
    store_ids,
    unpack_manifest,
)
from leveret.analytics.errors import ArchiveError, ArchiveRefusedError
from tests.support.examples import examples

STORE = "ab" * 16
NAMES = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FILES = st.builds(
    DataFile,
    st.sampled_from(["messages", "events"]),
    st.uuids().map(str),
    st.integers(1, 1000),
    st.integers(1, 1 << 40),
    st.integers(-(1 << 62), 1 << 62),
    st.integers(-(1 << 62), 1 << 62),
    st.none() | st.lists(st.tuples(NAMES, NAMES), max_size=3).map(tuple),
)
STEPS = st.lists(st.tuples(st.lists(FILES, max_size=2), st.integers(0, 3), st.booleans()), min_size=1, max_size=12)


def data_file(path: str) -> DataFile:
    return DataFile("messages", path, 1, 1, 0, 0, (("/", "a"),))


@pytest.fixture
def files(any_url: str) -> ArchiveFiles:
    return ArchiveFiles(any_url)


@given(st.lists(FILES, max_size=3).map(tuple), st.dictionaries(st.uuids().map(str), st.integers(0, 1 << 60)))
def test_a_manifest_is_read_as_it_was_written(added: tuple[DataFile, ...], removed: dict[str, int]) -> None:
    position = {"messages": {"next": {"1/0": 5}}, "events": {"file": 1, "offset": 40}}
    written = Manifest(7, STORE, "one", 1, "w", position, added, removed)
    assert unpack_manifest(pack_manifest(written), "") == written


@given(st.data())
def test_a_damaged_manifest_is_found(data: st.DataObject) -> None:
    octets = bytearray(pack_manifest(Manifest(7, STORE, "one", 1, "w", {}, (data_file("a"),))))
    at = data.draw(st.integers(0, len(octets) - 2))
    octets[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ArchiveError, match="here is damaged; restore it from a copy of the archive"):
        unpack_manifest(bytes(octets), "here")


@given(STEPS, st.integers(0, 60))
@settings(max_examples=examples(40))
def test_the_manifests_say_together_what_was_added_and_not_removed(
    steps: list[tuple[list[DataFile], int, bool]], before: int
) -> None:
    files = ArchiveFiles(f"memory://{uuid4().hex}")
    log = ManifestLog(files, STORE, "one")
    for number in range(before):
        log.append({"at": number})
    model: dict[str, DataFile] = {}
    for number, (added, count, is_restart) in enumerate(steps, before):
        removed = list(model)[:count]
        model = {path: each for path, each in model.items() if path not in removed}
        model |= {each.path: each for each in added}
        log.append({"at": number}, added, removed)
        if is_restart:
            log = ManifestLog(files, STORE, "one")
        found = read_manifests(files, STORE)
        assert dict(found.files) == dict(log.state.files) == model
        assert found.last is not None
        assert (found.last.number, found.last.position) == (number + 1, {"at": number})
        assert found.removed.keys() >= set(removed)
    # Two complete manifests and what came since are enough.
    assert len(files.names(f"manifests/{STORE}")) <= 100


def test_of_two_archivers_one_is_refused(files: ArchiveFiles) -> None:
    one, other = ManifestLog(files, STORE, "one"), ManifestLog(files, STORE, "one")
    one.append({}, [data_file("a")])
    with pytest.raises(ArchiveRefusedError, match="another archiver writes for the same data directory"):
        other.append({}, [data_file("b")])
    one.append({}, [data_file("c")])
    assert set(read_manifests(files, STORE).files) == {"a", "c"}
    assert store_ids(files) == [STORE]


def test_a_request_that_was_repeated_on_the_way(files: ArchiveFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    create: Callable[[str, bytes], None] = files.create

    def twice(path: str, octets: bytes) -> None:
        create(path, octets)
        create(path, octets)

    monkeypatch.setattr(files, "create", twice)
    log = ManifestLog(files, STORE, "one")
    assert log.append({}, [data_file("a")]).number == 1
    assert log.append({}, [data_file("b")]).number == 2
    assert set(read_manifests(files, STORE).files) == {"a", "b"}


def test_a_missing_manifest_is_an_error(files: ArchiveFiles) -> None:
    log = ManifestLog(files, STORE, "one")
    for _ in range(3):
        log.append({})
    files.delete(manifest_path(STORE, 2))
    with pytest.raises(ArchiveError, match=f"manifests of .*/manifests/{STORE} are missing; restore them"):
        read_manifests(files, STORE)


def test_an_archive_of_a_newer_version(files: ArchiveFiles) -> None:
    octets = pack_manifest(Manifest(1, STORE, "one", 1, "w", {}))
    assert replace(unpack_manifest(octets, ""), broker="one").broker == "one"
    files.create("archive.json", json.dumps({"format": FORMAT + 1}).encode())
    with pytest.raises(ArchiveError, match="was written by a newer version of Leveret"):
        files.exists()


def test_what_is_not_an_archive(files: ArchiveFiles) -> None:
    assert not files.exists()
    assert files.names("manifests") == files.paths_below("messages") == []
    files.make()
    files.make()
    assert files.exists()
    files.delete("archive.json")
    files.create("archive.json", b"{}")
    with pytest.raises(ArchiveError, match=r"is damaged, or .* is not an archive of Leveret"):
        files.make()

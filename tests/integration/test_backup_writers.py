"""Backups of two directories in one place: one of them is refused, and what they have is never mixed."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from leveret.analytics.backup.capture import Capture
from leveret.analytics.backup.layout import BackupRefusedError
from leveret.analytics.backup.listing import verify
from leveret.analytics.backup.moments import spans
from leveret.analytics.backup.repository import Repository
from leveret.analytics.backup.restore import restore, selects
from leveret.analytics.backup.writers import Claim, Turn
from tests.integration.test_backup import bodies_in, publish, settle
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Connection


def add(directory: Path, queue: str, *bodies: bytes) -> Path:
    """Run a broker on a directory, publish, and return the data directory."""
    directory.mkdir(exist_ok=True)
    with LeveretProcess(directory, settings={"storage.segment_size": 65_536}) as process:
        with Connection(process.url) as connection:
            connection.channel().queue_declare(queue, durable=True)
            publish(connection.channel(), queue, bodies)
        settle(process)
        return process.data_dir


def copied(data: Path, to: Path) -> Path:
    to.mkdir()
    shutil.copytree(data, to / data.name)
    return to


def names(repository: Repository) -> list[int]:
    return [each.number for each in repository.backups()]


def test_a_copy_goes_on_and_the_other_one_is_refused(tmp_path: Path) -> None:
    data = add(tmp_path / "a", "q", b"1", b"2")
    copy = copied(data, tmp_path / "b")
    repository = Repository(str(tmp_path / "backup"))
    with closing(Capture(str(data), repository)) as old:
        old.take()
        with closing(Capture(str(copy / "data"), repository)) as new:
            with pytest.raises(BackupRefusedError, match=r"b/data takes backups in .* now"):
                old.take()
            # It has all that the last backup has: nothing is sent again, and no moment is missing.
            assert new.take().sent < 20_000
    assert names(repository) == [1, 2]
    add(copy, "q", b"3")
    with pytest.raises(BackupRefusedError, match="b/data has taken over"):
        Capture(str(data), repository)
    with closing(Capture(str(copy / "data"), repository)) as new:
        new.take()
    assert spans(repository.backups())[0][1] == repository.backups()[-1].time
    restore(repository, str(tmp_path / "r"), None, selects(None, None))
    assert bodies_in(tmp_path / "r", "q") == [b"1", b"2", b"3"]


@pytest.mark.parametrize("bodies", [(b"x",), (b"x", b"y" * 100_000, b"z" * 100_000)])
def test_two_histories_are_two_chains(tmp_path: Path, bodies: tuple[bytes, ...]) -> None:
    data = add(tmp_path / "a", "q", b"1")
    copy = copied(data, tmp_path / "b")
    repository = Repository(str(tmp_path / "backup"))
    with closing(Capture(str(data), repository, Turn(1, 1, "a"))) as old:
        old.take()
        # Only this one has it.
        add(tmp_path / "a", "q", *bodies)
        old.take()
    add(copy, "q", b"2")
    with closing(Capture(str(copy / "data"), repository, Turn(2, 1, "b"))) as new:
        new.take()
        add(copy, "q", b"3")
        new.take(is_full=False)
    assert names(repository) == [1, 2, 4, 5]
    first, second, third, fourth = repository.backups()
    assert spans(repository.backups()) == [(first.time, second.time), (third.time, fourth.time)]
    assert not verify(repository).damage
    for at, expected in (
        (first, [b"1"]), (second, [b"1", *bodies]), (third, [b"1", b"2"]), (fourth, [b"1", b"2", b"3"]),
    ):  # fmt: skip
        restore(repository, str(tmp_path / f"r{at.number}"), at.time, selects(None, None))
        assert bodies_in(tmp_path / f"r{at.number}", "q") == expected
    with pytest.raises(BackupRefusedError, match="has no backup of"):
        restore(repository, str(tmp_path / "between"), (second.time + third.time) // 2, selects(None, None))


def test_who_was_paused_before_its_manifest_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = add(tmp_path / "a", "q", b"1")
    copy = copied(data, tmp_path / "b")
    repository = Repository(str(tmp_path / "backup"))
    check = Claim.check
    with closing(Capture(str(data), repository)) as old:
        old.take()
        with closing(Capture(str(copy / "data"), repository)) as new:
            # The pause is between the look and the manifest.
            looks = iter((lambda _: None, check))
            monkeypatch.setattr(Claim, "check", lambda claim: next(looks)(claim))
            with pytest.raises(BackupRefusedError):
                old.take()
            # It is killed before it looks again.
            monkeypatch.setattr(Claim, "check", lambda _: None)
            late = old.take().name
            monkeypatch.setattr(Claim, "check", check)
            taken = new.take().name
    assert late.number == 2
    assert repository.backups() == [repository.backups()[0], taken]
    assert len(repository.names("manifests")) == 2

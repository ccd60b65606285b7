"""Who may write to a backup repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.analytics.backup.layout import BackupError, BackupName, BackupRefusedError, Manifest
from leveret.analytics.backup.repository import Repository
from leveret.analytics.backup.writers import Claim, Turn, parse_turn
from leveret.analytics.errors import AnalyticsError
from leveret.storage.directory.directory_format import FORMAT_FILE


@pytest.fixture(params=("", "key"))
def repository(tmp_path: Path, request: pytest.FixtureRequest) -> Repository:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    return Repository(str(tmp_path / "backup"), str(key) if request.param else "")


def directory(path: Path) -> str:
    path.mkdir()
    (path / FORMAT_FILE).touch()
    return str(path)


def test_whoever_was_replaced_stays_out(tmp_path: Path, repository: Repository) -> None:
    first, second = directory(tmp_path / "a"), directory(tmp_path / "b")
    claim = Claim(repository, first, None)
    assert claim.is_other
    claim.check()
    # A new process on the same directory goes on.
    again = Claim(repository, first, None)
    assert (again.number, again.is_other) == (claim.number, False)
    other = Claim(repository, second, None)
    assert other.is_other
    other.check()
    with pytest.raises(BackupRefusedError, match=r":/.*/b takes backups in .*backup now"):
        claim.check()
    with pytest.raises(BackupRefusedError, match=r"/b has taken over .* delete .*/backup/writers$"):
        Claim(repository, first, None)
    repository.remove("writers/0000000002")
    claim.check()


def test_a_cluster_follows_its_leaders_choices(tmp_path: Path, repository: Repository) -> None:
    first, second = directory(tmp_path / "a"), directory(tmp_path / "b")
    one = Claim(repository, first, Turn(3, 1, "n1"))
    two = Claim(repository, second, Turn(3, 2, "n2"))
    with pytest.raises(BackupRefusedError, match=r"node n2 \(.*/b\) takes backups"):
        one.check()
    for late in (Turn(3, 1, "n1"), Turn(3, 2, "n1"), Turn(2, 9, "n1")):
        with pytest.raises(BackupRefusedError, match="node n2 takes backups"):
            Claim(repository, first, late)
    # What the same leader's nodes have has one origin; after another leader it must be looked at.
    back = Claim(repository, first, Turn(3, 3, "n1"))
    assert back.is_other
    assert not Claim(repository, first, Turn(3, 4, "n1")).is_other
    assert Claim(repository, first, Turn(4, 1, "n1")).is_other
    with pytest.raises(BackupRefusedError):
        two.check()
    # Somebody who has not been chosen is chased away again.
    third = directory(tmp_path / "c")
    stranger = Claim(repository, third, None)
    Claim(repository, first, Turn(4, 1, "n1")).check()
    with pytest.raises(BackupRefusedError):
        stranger.check()
    with pytest.raises(BackupRefusedError, match="has taken over"):
        Claim(repository, third, None)


def test_claims_are_few_and_damage_is_named(tmp_path: Path) -> None:
    repository = Repository(str(tmp_path / "backup"))
    data = directory(tmp_path / "a")
    for number in range(30):
        Claim(repository, data, Turn(1, number, "n"))
    assert len(repository.names("writers")) <= 21
    (tmp_path / "backup/writers/0000000030").write_text("[]")
    with pytest.raises(BackupError, match="writers/0000000030 is damaged"):
        Claim(repository, data, None)


@pytest.mark.parametrize("text", ["", "1", "1/2", "1/2/", "x/2/n", "1/-2/n"])
def test_turns_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(AnalyticsError, match="is no turn"):
        parse_turn(text)
    assert parse_turn("1/2/n/3") == Turn(1, 2, "n/3")


def test_of_two_backups_of_one_number_that_of_the_later_claim_counts(repository: Repository) -> None:
    before = BackupName(1, 10**15, True)
    late, good = BackupName(2, 2 * 10**15, False), BackupName(2, 10**15 + 5, True)
    for name, writer in ((before, 1), (late, 1), (good, 2)):
        repository.write_manifest(Manifest(name, {}, writer=writer))
    assert repository.backups() == [before, good]
    # Of a number that nobody else has, too.
    last = BackupName(4, 3 * 10**15, True)
    repository.write_manifest(Manifest(last, {}, writer=1))
    newer = BackupName(5, 3 * 10**15, True)
    repository.write_manifest(Manifest(newer, {}, writer=3))
    repository.delete_strays(before, {good}, 2)
    assert repository.backups() == [before, good, newer]
    assert len(repository.names("manifests")) == 3

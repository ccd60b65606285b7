"""Backups of a broker that runs, and what is restored. That each kind of object comes back is in tests/crash/rows."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import leveret
from leveret.analytics.backup.capture import Capture
from leveret.analytics.backup.listing import verify
from leveret.analytics.backup.repository import Repository
from leveret.analytics.backup.restore import restore, selects
from leveret.analytics.errors import AnalyticsError
from leveret.storage.directory.directory_format import DataDirectoryError, read_format
from leveret.storage.disk.files import DiskFiles
from leveret.storage.snapshots import segments
from leveret.storage.snapshots.dead import last_tick
from tests.conformance.topology import counts, drain, got
from tests.integration.program import run as run_program
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.s3_store import running_s3
from tests.support.wire import Channel, Connection

PERSISTENT = {"delivery_mode": 2}
KEY = "00112233445566778899aabbccddeeff" * 2


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_program(*map(str, arguments))


def now() -> int:
    return time.time_ns() // 1000


def tick(data: Path) -> int:
    """The time of the last tick."""
    found = read_format(DiskFiles(), str(data))
    assert found is not None
    cut = last_tick(DiskFiles(), str(data / "events"), found.store_id)
    return cut.time if cut else 0


def settle(broker: LeveretProcess) -> int:
    """Wait for a tick after what has been done, and return its time."""
    since = now()
    # There is none if nothing is written.
    with Connection(broker.url) as connection:
        connection.channel().queue_declare("marker", durable=True)
        publish(connection.channel(), "marker", [b"m"])
    wait_until(lambda: tick(broker.data_dir) > since, "a tick")
    return tick(broker.data_dir)


def publish(channel: Channel, queue: str, bodies: Sequence[bytes], **properties: object) -> None:
    confirming = channel.connection.channel()
    confirming.confirm_select()
    for body in bodies:
        confirming.publish("", queue, body, PERSISTENT | properties)
    assert all(confirming.wait_for_confirms(len(bodies)))
    confirming.close()


def bodies_in(data: Path, queue: str) -> list[bytes]:
    return list(leveret.scan(data, queue=queue, columns=["body"]).read_all()["body"].to_pylist())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path, settings={"storage.segment_size": 65_536, "log_level": "warning"}) as process:
        yield process


@pytest.fixture
def channel(broker: LeveretProcess) -> Iterator[Channel]:
    with Connection(broker.url) as connection:
        yield connection.channel()


@pytest.mark.parametrize("seed", range(2))
def test_any_moment_between_two_backups_is_restored(
    broker: LeveretProcess, channel: Channel, tmp_path: Path, seed: int
) -> None:
    rng, names, number = random.Random(seed), ("a", "b", "lazy"), 0
    model: dict[str, list[bytes]] = {name: [] for name in names}
    for name in names:
        mode = [("x-queue-mode", "S", "lazy")] if name == "lazy" else []
        channel.queue_declare(name, durable=True, arguments=mode)
    moments: list[tuple[int, dict[str, list[bytes]]]] = []
    with closing(Capture(str(broker.data_dir), Repository(str(tmp_path / "backup")))) as capture:
        settle(broker)
        capture.take()
        for step in range(10):
            for name in names:
                if rng.random() < 0.7:
                    bodies = [b"%d:%d" % (number + each, seed) + bytes(rng.choice((10, 3000))) for each in range(40)]
                    number += len(bodies)
                    publish(channel, name, bodies)
                    model[name] += bodies
                if rng.random() < 0.6:
                    for _ in range(rng.randrange(1 + len(model[name]))):
                        assert got(channel, name, no_ack=True).body == model[name].pop(0)
                if rng.random() < 0.15:
                    channel.queue_purge(name)
                    model[name].clear()
            moments.append((settle(broker), {name: list(found) for name, found in model.items()}))
            if rng.random() < 0.5 or step == 4:
                capture.take(is_full=rng.random() < 0.3)
        settle(broker)
        capture.take(is_full=False)
    repository = Repository(str(tmp_path / "backup"))
    assert not verify(repository).damage
    target = tmp_path
    for at, (moment, expected) in enumerate(moments):
        target = tmp_path / f"restored-{at}"
        restored = restore(repository, str(target), moment, selects(None, None))
        found = {name: bodies_in(target, name) for name in names}
        assert found == expected, f"step {at}"
        assert restored.written.messages > sum(map(len, expected.values()))
    # A broker starts on the last one, and says nothing: there is no damage.
    directory = tmp_path / "again"
    directory.mkdir()
    target.rename(directory / "data")
    with (
        LeveretProcess(directory, settings={"log_level": "warning"}) as process,
        Connection(process.url) as connection,
    ):
        for name in names:
            assert drain(connection.channel(), name) == expected[name]
    assert not process.log_text()


def test_a_backup_sends_only_what_is_new(broker: LeveretProcess, channel: Channel, tmp_path: Path) -> None:
    channel.queue_declare("q", durable=True)
    publish(channel, "q", [bytes(4000)] * 500)
    settle(broker)
    with closing(Capture(str(broker.data_dir), Repository(str(tmp_path / "backup")))) as capture:
        first = capture.take()
        assert first.sent >= first.bytes > 2_000_000
        publish(channel, "q", [bytes(4000)] * 10)
        settle(broker)
        second = capture.take(is_full=False)
    # What was appended, and the small files that are replaced as a whole.
    assert 40_000 < second.sent < 140_000
    assert second.bytes > first.bytes
    # Another process goes on where this one has ended.
    assert "of 2" in run("backup", "--data-dir", broker.data_dir, "--to", tmp_path / "backup").stderr
    with closing(Capture(str(broker.data_dir), Repository(str(tmp_path / "backup")))) as capture:
        assert capture.take().sent < 100_000


def test_queues_are_published_into_a_broker(broker: LeveretProcess, channel: Channel, tmp_path: Path) -> None:
    channel.queue_declare("orders.eu", durable=True, arguments=[("x-max-priority", "I", 3)])
    channel.queue_declare("other", durable=True)
    for priority in (1, 3, 2):
        publish(channel, "orders.eu", [b"%d" % priority], priority=priority, user_id="guest", headers=[("k", "I", 1)])
    publish(channel, "other", [b"o"])
    settle(broker)
    run("backup", "--data-dir", broker.data_dir, "--to", tmp_path / "backup")
    before = now() / 1e6
    channel.queue_purge("orders.eu")
    settle(broker)
    run("backup", "--data-dir", broker.data_dir, "--to", tmp_path / "backup")
    into = ("--queues", "orders.*", "--into", broker.url, "--at", f"{before:.6f}")
    said = run("restore", "--from", tmp_path / "backup", *into, "--dry-run")
    assert said.stdout == "orders.eu.restored would get 3 messages of orders.eu in /\n"
    assert not [name for name in _names(broker) if "restored" in name]
    assert run("restore", "--from", tmp_path / "backup", *into).returncode == 0
    first = channel.get("orders.eu.restored", no_ack=True)
    assert first is not None
    assert (first.body, first.headers) == (b"3", [("k", "I", 1)])
    assert drain(channel, "orders.eu.restored") == [b"2", b"1"]
    run("restore", "--from", tmp_path / "backup", *into, "--as", "{}")
    assert counts(channel, "orders.eu")[0] == 3


def _names(broker: LeveretProcess) -> list[str]:
    return [path.read_text() for path in broker.data_dir.glob("q/*/QUEUE.json")]


def test_an_encrypted_backup_needs_its_key(broker: LeveretProcess, channel: Channel, tmp_path: Path) -> None:
    channel.queue_declare("q", durable=True)
    publish(channel, "q", [b"a very secret body"] * 3)
    settle(broker)
    key, other, url = tmp_path / "key", tmp_path / "other", tmp_path / "backup"
    key.write_text(KEY + "\n")
    other.write_bytes(bytes(range(32)))
    with_key = ("--key-file", key)
    assert run("backup", "--data-dir", broker.data_dir, "--to", url, *with_key).returncode == 0
    assert run("verify", "--from", url, *with_key).returncode == 0
    octets = b"".join(path.read_bytes() for path in url.rglob("*") if path.is_file())
    assert b"secret" not in octets
    assert b"definitions" not in octets
    for arguments, text in (
        ((), "is encrypted: its key is needed (--key-file)"),
        (("--key-file", other), "the key is another one"),
    ):
        said = run("restore", "--from", url, "--data-dir", tmp_path / "r", *arguments)
        assert (said.returncode, said.stdout) == (1, "")
        assert said.stderr.endswith(f"{text}\n")
    assert run("restore", "--from", url, "--data-dir", tmp_path / "r", *with_key).returncode == 0
    assert bodies_in(tmp_path / "r", "q") == [b"a very secret body"] * 3


def test_each_damage_is_named_and_costs_no_more_than_it_must(
    broker: LeveretProcess, channel: Channel, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        channel.queue_declare(name, durable=True)
        publish(channel, name, [name.encode() * 300] * 300)
    settle(broker)
    url = tmp_path / "backup"
    run("backup", "--data-dir", broker.data_dir, "--to", url)
    repository = Repository(str(url))
    outcomes, texts = set(), []
    # What is in writers/ concerns those who write.
    there = sorted(each for each in url.rglob("*") if each.is_file() and each.parent.name != "writers")
    for at, path in enumerate(there):
        octets = path.read_bytes()
        for damaged in (None, octets[: len(octets) // 2], octets[:-1] + bytes([octets[-1] ^ 1])):
            if damaged is None:
                path.unlink()
            else:
                path.write_bytes(damaged)
            try:
                assert verify(repository).damage
            except AnalyticsError as error:
                # The marker, or the only manifest.
                texts.append(str(error))
            target = tmp_path / f"r{at}"
            try:
                found = restore(repository, str(target), None, selects(None, None))
            except (AnalyticsError, DataDirectoryError, OSError) as error:
                texts.append(str(error))
                outcomes.add("refused")
            else:
                whole = sum(bodies_in(target, name) == [name.encode() * 300] * 300 for name in ("a", "b"))
                outcomes.add(f"{whole} of 2")
                assert whole == 2 or found.written.damaged
            subprocess.run(["rm", "-rf", target], check=True)
            path.write_bytes(octets)
    assert outcomes == {"refused", "1 of 2", "2 of 2"}
    assert all(str(url) in text or "backup/" in text for text in texts)
    assert not verify(repository).damage


def test_a_backup_that_is_killed_leaves_nothing_that_counts(
    broker: LeveretProcess, channel: Channel, tmp_path: Path
) -> None:
    channel.queue_declare("q", durable=True)
    expected: list[bytes] = []
    url, target = tmp_path / "backup", tmp_path / "r"
    for at in range(6):
        bodies = [b"%d-%d" % (at, each) + bytes(2000) for each in range(300)]
        publish(channel, "q", bodies)
        expected += bodies
        settle(broker)
        command = [sys.executable, "-m", "leveret", "backup", "--data-dir", str(broker.data_dir), "--to", str(url)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd="/")
        objects = sum(path.is_file() for path in url.rglob("*"))
        deadline = time.monotonic() + 60
        while process.poll() is None and sum(path.is_file() for path in url.rglob("*")) <= objects + at:
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert run("backup", "--data-dir", broker.data_dir, "--to", url).returncode == 0
    assert run("verify", "--from", url).returncode == 0
    restore(Repository(str(url)), str(target), None, selects(None, None))
    assert bodies_in(target, "q") == expected


def test_on_an_object_store(broker: LeveretProcess, channel: Channel, tmp_path: Path) -> None:
    channel.queue_declare("q", durable=True)
    publish(channel, "q", [b"m"] * 10)
    settle(broker)
    with running_s3() as bucket:
        url = f"{bucket}/backup"
        assert run("backup", "--data-dir", broker.data_dir, "--to", url).returncode == 0
        found = verify(Repository(url))
        assert not found.damage
        assert found.whole == found.backups
        restore(Repository(url), str(tmp_path / "r"), None, selects(None, None))
        said = run("backup", "--data-dir", broker.data_dir, "--to", "s3://no-such-bucket/backup")
    assert bodies_in(tmp_path / "r", "q") == [b"m"] * 10
    assert (said.returncode, len(said.stderr.splitlines())) == (1, 1)


def test_what_is_refused(broker: LeveretProcess, channel: Channel, tmp_path: Path) -> None:
    channel.queue_declare("q", durable=True)
    settle(broker)
    data, url, newer = broker.data_dir, tmp_path / "backup", tmp_path / "newer"
    run("backup", "--data-dir", data, "--to", url)
    other = tmp_path / "another"
    other.mkdir()
    with LeveretProcess(other) as second:
        settle(second)
        newer.mkdir()
        (newer / "leveret-backup.json").write_text('{"format": 99, "store": ""}')
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "file").write_text("")
        (tmp_path / "short").write_text("abc")
        take, give = ("backup", "--data-dir", data, "--to"), ("restore", "--from", url)
        for arguments, status, text in (
            ((*take, data / "backup"), 1, "is in the data directory; put the backups somewhere else"),
            ((*take, tmp_path / "full"), 1, "is not empty, and is no backup of Leveret; use another place"),
            (("backup", "--data-dir", second.data_dir, "--to", url), 1, "has the backups of another data directory"),
            (("backup", "--data-dir", tmp_path / "full", "--to", url), 1, "is not a data directory of Leveret"),
            ((*take, url, "--key-file", tmp_path / "short"), 1, "has no key: 32 random bytes are needed"),
            ((*take, url, "--key-file", tmp_path / "none"), 1, "none: No such file or directory"),
            ((*take, url, "--keep", "soon"), 1, "'soon' is not a duration"),
            ((*take, newer), 1, "was written by a newer version of Leveret"),
            (("backup", "--data-dir", data), 2, "required: --to"),
            ((*give, "--data-dir", tmp_path / "full"), 1, "is not an empty directory"),
            (
                (*give, "--data-dir", tmp_path / "r", "--at", "2001-01-01"),
                1,
                "no backup of 2001-01-01T00:00:00.000Z; it has 20",
            ),
            ((*give, "--data-dir", tmp_path / "r", "--at", "then"), 1, "'then' is not a time"),
            (give, 1, "say where to restore to"),
            (
                (*give, "--into", broker.url, "--queues", "z*"),
                1,
                "no queue of the backup is chosen; queues there: marker, q",
            ),
            ((*give, "--into", "http://x"), 1, "option 'url' must be like amqp://"),
            (("restore", "--from", tmp_path / "full", "--list"), 1, "is not a backup of Leveret"),
            (("verify", "--from", tmp_path / "nothing"), 1, "is not a backup of Leveret"),
        ):
            said = run(*arguments)
            assert (said.returncode, "Traceback" in said.stderr) == (status, False), said.stderr
            assert text in said.stderr
    assert not (tmp_path / "r").exists()
    with closing(Capture(str(data), Repository(str(url)))):
        assert "another process takes backups" in run(*take, url).stderr
    if os.geteuid():
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "Permission denied" in run(*take, tmp_path / "locked" / "b").stderr


def test_a_cut_that_is_too_old_costs_no_queue(
    broker: LeveretProcess, channel: Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("q", "unchanged"):
        channel.queue_declare(name, durable=True)
        publish(channel, name, [b"m"] * 10)
    settle(broker)
    count, real = 0, segments.count_missing

    def count_missing(*arguments: Any) -> int:
        # As if a segment had been dropped between the cut and its link: a later cut is taken.
        nonlocal count
        count += 1
        if count == 1:
            publish(channel, "q", [b"n"])
            return 1
        return real(*arguments)

    monkeypatch.setattr("leveret.storage.snapshots.snapshot.count_missing", count_missing)
    with closing(Capture(str(broker.data_dir), Repository(str(tmp_path / "backup")))) as capture:
        capture.take()
    restore(Repository(str(tmp_path / "backup")), str(tmp_path / "r"), None, selects(None, None))
    # The later cut may be from before the last message.
    assert bodies_in(tmp_path / "r", "q")[:10] == [b"m"] * 10
    assert bodies_in(tmp_path / "r", "unchanged") == [b"m"] * 10


def test_the_broker_takes_backups_itself(tmp_path: Path) -> None:
    url, key = tmp_path / "backup", tmp_path / "key"
    key.write_text(KEY)
    settings: dict[str, object] = {"backup.url": url, "backup.log_interval": "1s", "backup.key_file": key}
    with LeveretProcess(tmp_path, settings=settings) as process:
        wait_until(lambda: len(children(process)) == 1, "the program is started")
        (first,) = children(process)
        with Connection(process.url) as connection:
            connection.channel().queue_declare("q", durable=True)
            publish(connection.channel(), "q", [b"1"])
        moment = settle(process)
        wait_until(lambda: newest(url, key) >= moment, "a backup after the message")
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: children(process) not in ([], [first]), "it is started again")
        (second,) = children(process)
        process.kill()
        wait_until(lambda: not is_backup(second), "it has ended with the killed broker")
        assert "the backup has ended with status -9; it is started again in 1 s" in process.log_text()
    restore(Repository(str(url), str(key)), str(tmp_path / "r"), None, selects(None, None))
    assert bodies_in(tmp_path / "r", "q") == [b"1"]


def is_backup(pid: int) -> bool:
    try:
        return b"\0backup\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(process: LeveretProcess) -> list[int]:
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in found if is_backup(int(pid))]


def newest(url: Path, key: Path) -> int:
    names = Repository(str(url), str(key)).backups()
    return names[-1].time if names else 0

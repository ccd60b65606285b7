"""Deleting messages by their keys: those that `leveret.scan` has read, over HTTP and by leveretctl."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import leveret as package
from tests.conformance.topology import drain
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import CommandResult, Leveretctl
from tests.support.management import Management
from tests.support.wire import Channel, Connection

KEY = ("queue_id", "store_priority", "seq")


@pytest.fixture
def channel(process: LeveretProcess) -> Iterator[Channel]:
    with Connection(process.url) as opened:
        channel = opened.channel()
        channel.queue_declare("q", durable=True)
        yield channel
        channel.queue_delete("q")


@pytest.fixture
def api(process: LeveretProcess) -> Management:
    return Management(process.http_url)


@pytest.fixture
def ctl(process: LeveretProcess) -> Leveretctl:
    return Leveretctl(process.http_url)


def publish(channel: Channel, *bodies: str) -> None:
    for body in bodies:
        channel.publish("", "q", body.encode(), {"delivery_mode": 2})
    channel.sync()


def scanned(process: LeveretProcess, count: int) -> dict[str, tuple[int, ...]]:
    """The keys of the messages in the queue by their bodies, as soon as its files show this many."""
    rows: list[dict[str, Any]] = []

    def are_there() -> bool:
        nonlocal rows
        rows = package.scan(process.data_dir, queue="q", columns=[*KEY, "body"]).read_all().to_pylist()
        return len(rows) == count

    wait_until(are_there, "all messages are in the files")
    return {row["body"].decode(): tuple(row[name] for name in KEY) for row in rows}


def write(path: Path, keys: list[tuple[int, ...]]) -> str:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([KEY, *keys])
    return str(path)


def delete(api: Management, queue_id: int, *keys: tuple[int, ...], **options: Any) -> dict[str, Any]:
    body = {"queue_id": queue_id, "keys": keys, **options}
    found: dict[str, Any] = api.request("POST", "queues", "/", "q", "delete-messages", body=body)
    return found


def refused(api: Management, body: dict[str, Any], queue: str = "q") -> tuple[int, str]:
    return api.refusal("POST", "queues", "/", queue, "delete-messages", body=body)


def left(channel: Channel) -> list[str]:
    return [body.decode() for body in drain(channel, "q")]


class TestHttp:
    def test_the_answer(self, process: LeveretProcess, api: Management, channel: Channel) -> None:
        publish(channel, *"abcd")
        held = channel.get("q")
        assert held is not None
        keys = scanned(process, 4)
        queue_id = keys["a"][0]
        wanted = [keys["a"][1:], keys["c"][1:], (0, 99)]
        skipped = [
            {"store_priority": 0, "seq": keys["a"][2], "reason": "unacked"},
            {"store_priority": 0, "seq": 99, "reason": "unknown"},
        ]
        counted = delete(api, queue_id, *wanted, dry_run=True)
        assert counted == {"deleted": 1, "dry_run": True, "skipped": skipped, "messages_ready": 3}
        done = delete(api, queue_id, *wanted)
        assert done == {"deleted": 1, "dry_run": False, "skipped": skipped, "messages_ready": 2}
        channel.recover(requeue=True)
        assert left(channel) == ["a", "b", "d"]

    def test_refused(self, process: LeveretProcess, api: Management, channel: Channel) -> None:
        publish(channel, "a")
        queue_id = scanned(process, 1)["a"][0]
        pairs = "which is not a pair [store_priority, seq]"
        for body, expected in (
            ({}, "[{key_missing,queue_id},{key_missing,keys}]"),
            ({"queue_id": queue_id, "keys": 1}, "keys must be a list of pairs [store_priority, seq]"),
            ({"queue_id": queue_id, "keys": [1]}, f"keys has 1, {pairs}"),
            ({"queue_id": queue_id, "keys": [[0, 0]]}, f"keys has [0,0], {pairs}"),
            ({"queue_id": queue_id, "keys": [[256, 1]]}, f"keys has [256,1], {pairs}"),
            ({"queue_id": queue_id, "keys": [[0, True]]}, f"keys has [0,true], {pairs}"),
            (
                {"queue_id": queue_id, "keys": [[0, 1]] * 10_001},
                "keys has 10001 entries, 10000 are allowed in a request",
            ),
        ):
            assert refused(api, body) == (400, expected)
        status, reason = refused(api, {"queue_id": queue_id + 1, "keys": [[0, 1]]})
        assert (status, f"has the queue_id {queue_id}, the keys have {queue_id + 1}" in reason) == (400, True)
        assert refused(api, {"queue_id": 1, "keys": []}, "nowhere")[0] == 404
        assert left(channel) == ["a"]

    def test_it_needs_read_permission(self, process: LeveretProcess, api: Management, channel: Channel) -> None:
        api.request("PUT", "users", "reader", body={"password": "x", "tags": "management"})
        everything = {"configure": ".*", "write": ".*", "read": "^other$"}
        api.request("PUT", "permissions", "/", "reader", body=everything)
        other = Management(process.http_url.replace("guest:guest", "reader:x"))
        assert refused(other, {"queue_id": 1, "keys": []})[0] == 401


class TestCommand:
    def test_deleting(self, process: LeveretProcess, ctl: Leveretctl, channel: Channel, tmp_path: Path) -> None:
        publish(channel, *"abcd")
        keys = scanned(process, 4)
        file = write(tmp_path / "keys.csv", [keys["b"], keys["d"]])
        shown = ctl.output("delete_messages", "q", "--keys", file, "--dry-run", "-q")
        assert shown == "Would delete 2 messages, skipped 0\n"
        banner = "Deleting messages of queue 'q' in vhost '/' ...\n"
        assert ctl.output("delete_messages", "q", "--keys", file) == f"{banner}Deleted 2 messages, skipped 0\n"
        again = ctl("delete_messages", "q", "--keys", file, "-q")
        place = ["{},{},{}".format(*keys[name]) for name in "bd"]
        expected = (
            "Deleted 0 messages, skipped 2\n  2 skipped: they are not in the queue any more\n"
            f"  {place[0]}: gone\n  {place[1]}: gone\n"
        )
        assert again == CommandResult(0, expected, ""), "it may be repeated"
        assert left(channel) == ["a", "c"]

    def test_what_is_left_is_listed(
        self, process: LeveretProcess, ctl: Leveretctl, channel: Channel, tmp_path: Path
    ) -> None:
        publish(channel, *[f"{number}" for number in range(30)])
        keys = scanned(process, 30)
        for _ in range(25):
            assert channel.get("q")
        file, skipped = write(tmp_path / "keys.csv", [*keys.values()]), tmp_path / "skipped.csv"
        ran = ctl("delete_messages", "q", "--keys", file, "-q")
        assert (ran.status, ran.out) == (69, "")
        lines = ran.err.splitlines()
        assert lines[:3] == [
            "Error:",
            "Deleted 5 messages, skipped 25",
            "  25 skipped: a consumer holds them",
        ]
        assert lines[-1] == "  and 5 more; --skipped <file> writes all"
        ran = ctl("delete_messages", "q", "--keys", file, "--skipped", str(skipped), "--formatter", "json")
        shown = json.loads(ran.err)
        assert (ran.status, shown["deleted"], shown["skipped_by_reason"]) == (69, 0, {"unacked": 25, "gone": 5})
        assert len(skipped.read_text().splitlines()) == 31
        assert skipped.read_text().splitlines()[0] == "queue_id,store_priority,seq,reason"
        channel.recover(requeue=True)
        # Its columns are those of a file of keys.
        ran = ctl("delete_messages", "q", "--keys", str(skipped), "-q")
        assert (ran.status, ran.out.splitlines()[0]) == (0, "Deleted 25 messages, skipped 5")

    def test_many_from_standard_input(self, process: LeveretProcess, ctl: Leveretctl, channel: Channel) -> None:
        publish(channel, *[f"{number:05}" for number in range(12_000)])
        keys = scanned(process, 12_000)
        lines = [json.dumps(dict(zip(KEY, key, strict=True))) for body, key in keys.items() if int(body) % 3]
        shown = ctl.output("delete_messages", "q", "--keys", "-", "-q", stdin="\n".join(lines))
        assert shown == "Deleted 8000 messages, skipped 0\n"
        assert left(channel) == [f"{number:05}" for number in range(0, 12_000, 3)]

    def test_a_queue_that_was_declared_again(
        self, process: LeveretProcess, ctl: Leveretctl, channel: Channel, tmp_path: Path
    ) -> None:
        publish(channel, *"ab")
        file = write(tmp_path / "keys.csv", [*scanned(process, 2).values()])
        channel.queue_delete("q")
        channel.queue_declare("q", durable=True)
        publish(channel, *"cd")
        ran = ctl("delete_messages", "q", "--keys", file, "-q")
        assert (ran.status, ran.out) == (69, "")
        assert "they are of another queue, or of one of this name that was deleted since" in ran.err
        assert left(channel) == ["c", "d"]

    def test_a_bad_line_after_good_ones(
        self, process: LeveretProcess, ctl: Leveretctl, channel: Channel, tmp_path: Path
    ) -> None:
        file = tmp_path / "keys.csv"
        file.write_text("queue_id,store_priority,seq\n1,0,x\n")
        ran = ctl("delete_messages", "q", "--keys", str(file), "-q")
        assert ran == CommandResult(65, "", f'Error:\n{file}, line 2: seq is "x"\n')

    def test_misused(self, ctl: Leveretctl, tmp_path: Path) -> None:
        file = write(tmp_path / "keys.csv", [])
        for arguments in (
            ("q",),
            ("q", "--keys", str(tmp_path / "nothing")),
            ("q", "--keys", file, "--skipped", file),
            ("q", "--keys", str(tmp_path), "--skipped", str(tmp_path / "skipped")),
            ("--keys", file),
        ):
            ran = ctl("delete_messages", *arguments)
            assert (ran.status in (64, 65), ran.out) == (True, "")
            assert ran.err.startswith("Error (argument validation): ")
        ran = ctl("delete_messages", "nowhere", "--keys", file, "-q")
        assert ran.status == 0, "there is nothing to delete"

    def test_without_a_broker(self, tmp_path: Path) -> None:
        file = write(tmp_path / "keys.csv", [(1, 0, 1)])
        ran = Leveretctl("http://guest:guest@127.0.0.1:1")("delete_messages", "q", "--keys", file, "-q")
        assert (ran.status, "Target node is not running" in ran.err) == (69, True)

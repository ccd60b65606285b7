"""A queue is restored from the broker's backups by a job: over HTTP, with permissions, over a restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leveret.analytics.backup.moments import shown_time
from tests.conformance.topology import drain
from tests.integration.test_backup import publish, settle
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management
from tests.support.wire import Connection

BODIES = [b"%d" % number + bytes(100) for number in range(1000)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LeveretProcess]:
    """One with backups, on which a queue was purged, and another one was deleted."""
    settings: dict[str, object] = {"backup.url": tmp_path / "backup", "backup.log_interval": "1s"}
    with LeveretProcess(tmp_path, settings=settings) as process, Connection(process.url) as connection:
        api = Management(process.http_url)
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        wait_until(lambda: bool(spans(api)), "a first backup")
        channel.queue_declare("gone", durable=True, arguments=[("x-max-priority", "I", 3)])
        publish(channel, "orders", BODIES, user_id="guest", headers=[("k", "I", 1)])
        for priority in (1, 3):
            publish(channel, "gone", [b"%d" % priority], priority=priority)
        moment = settle(process)
        channel.queue_purge("orders")
        channel.queue_delete("gone")
        later = settle(process)
        wait_until(lambda: any(each["to"] >= later // 1000 for each in spans(api)), "a backup of all that")
        process.moment = moment  # type: ignore[attr-defined]
        yield process


def spans(api: Management) -> list[dict[str, int]]:
    return list(api.request("GET", "backups")["restorable"])


def restore(api: Management, broker: LeveretProcess, queue: str, **options: Any) -> dict[str, Any]:
    at = broker.moment // 1000 + 1  # type: ignore[attr-defined]
    return dict(api.request("POST", "queues", "/", queue, "restore", body={"at": at, **options}))


def ended(api: Management, job: dict[str, Any]) -> dict[str, Any]:
    wait_until(lambda: api.request("GET", "jobs", "/", job["id"])["state"] != "running", "the end of the job")
    return dict(api.request("GET", "jobs", "/", job["id"]))


def refusal(api: Management, *path: str, **body: Any) -> tuple[int, str]:
    return api.refusal("POST", *path, body=body)


def test_what_was_purged_or_deleted_is_there_again(broker: LeveretProcess) -> None:
    api = Management(broker.http_url)
    counted = restore(api, broker, "orders", dry_run=True)
    assert (counted["dry_run"], counted["returned"]) == (True, 1000)
    assert not [each for each in api.request("GET", "queues") if "restored" in each["name"]]
    # Two users at once.
    api.request("PUT", "users", "second", body={"password": "second", "tags": "monitoring"})
    api.request("PUT", "permissions", "/", "second", body=dict.fromkeys(("configure", "write", "read"), ".*"))
    second = Management(broker.http_url.replace("guest:guest", "second:second"))
    both = restore(api, broker, "orders"), restore(second, broker, "orders", into="copy")
    job, copy = ended(api, both[0]), ended(second, both[1])
    assert (copy["user"], copy["state"], copy["returned"]) == ("second", "completed", 1000)
    assert (job["kind"], job["queue"], job["state"]) == ("restore", "orders.restored", "completed")
    assert (job["total"], job["scanned"], job["returned"], job["left_count"]) == (1000, 1000, 1000, 0)
    limited = ended(api, restore(api, broker, "gone", into="other", limit=1))
    assert (limited["returned"], limited["total"]) == (1, 2)
    with Connection(broker.url) as connection:
        channel = connection.channel()
        first = channel.get("orders.restored", no_ack=True)
        assert first is not None
        assert (first.body, first.headers, first.redelivered) == (BODIES[0], [("k", "I", 1)], False)
        assert drain(channel, "orders.restored") == BODIES[1:]
        assert drain(channel, "copy") == BODIES
        assert drain(channel, "other") == [b"3"]


def test_a_job_goes_on_after_a_crash_and_is_cancelled(broker: LeveretProcess) -> None:
    api = Management(broker.http_url)
    job = restore(api, broker, "orders", rate=100)

    def shown() -> dict[str, Any]:
        return dict(Management(broker.http_url).request("GET", "jobs", "/", job["id"]))

    wait_until(lambda: shown()["returned"] > 20, "the first messages")
    assert shown()["total"] == 1000
    # Its progress is stored once in 5 s; more than that is sent again.
    time.sleep(6)
    before = shown()["returned"]
    broker.restart(crash=True)
    wait_until(lambda: shown()["returned"] > before, "it goes on")
    api = Management(broker.http_url)
    api.request("DELETE", "jobs", "/", job["id"])
    assert shown()["state"] == "cancelled"
    with Connection(broker.url) as connection:
        got = drain(connection.channel(), "orders.restored")
    assert set(got) == set(BODIES[: len(set(got))])
    assert len(got) - len(set(got)) < 800


def test_who_may_restore_and_what_is_refused(broker: LeveretProcess) -> None:
    api, path = Management(broker.http_url), ("queues", "/", "orders", "restore")
    at = broker.moment // 1000 + 1  # type: ignore[attr-defined]
    for name, tags, permissions in (
        ("reader", "monitoring", {"configure": "", "write": ".*", "read": ".*"}),
        ("writer", "monitoring", {"configure": ".*", "write": ".*", "read": "^x"}),
        ("user", "management", {"configure": ".*", "write": ".*", "read": ".*"}),
    ):
        api.request("PUT", "users", name, body={"password": name, "tags": tags})
        api.request("PUT", "permissions", "/", name, body=permissions)
    others = {
        name: Management(broker.http_url.replace("guest:guest", f"{name}:{name}"))
        for name in ("reader", "writer", "user")
    }
    assert refusal(others["user"], *path, at=at)[0] == 401
    # One may not declare the queue that gets the messages, the other one may not read those of the queue.
    assert [refusal(others[name], *path, at=at)[0] for name in ("reader", "writer")] == [401, 401]
    assert refusal(others["writer"], *path, at=at, dry_run=True)[0] == 401
    assert not [each for each in api.request("GET", "queues") if "restored" in each["name"]]
    for body, text in (
        ({}, "at must be a time"),
        ({"at": "soon"}, "at must be a time such as 2026-01-31T12:00:00Z, is 'soon'"),
        ({"at": at, "what": 1}, "unknown key 'what'"),
        ({"at": "2001-01-01T00:00:00Z", "dry_run": True}, "has no backup of 2001-01-01T00:00:00.000Z; it has any time"),
    ):
        status, reason = refusal(api, *path, **body)
        assert (status, text in reason) == (400, True), reason
    # What is known only when the backup is read ends the job.
    job = ended(api, restore(api, broker, "unknown"))
    assert job["state"] == "failed"
    assert "the backup has no queue 'unknown' in vhost '/' of 20" in job["error"]


def test_a_broker_without_backups_restores_nothing(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as process:
        status, reason = refusal(Management(process.http_url), "queues", "/", "q", "restore", at=0)
        assert (status, reason.endswith("the broker takes no backups: backup.url is not set")) == (400, True)


def test_by_command(broker: LeveretProcess) -> None:
    leveretctl = Leveretctl(broker.http_url)
    at = f"--at={shown_time(broker.moment)}"  # type: ignore[attr-defined]
    assert "Would restore 1000 messages" in leveretctl.output("restore_queue", "orders", at, "--dry-run")
    assert "completed. Restored 1000 messages" in leveretctl.output("restore_queue", "orders", at)
    assert "Restored 2 messages" in leveretctl.output("restore_queue", "gone", at, "--into-queue", "back")
    with Connection(broker.url) as connection:
        assert drain(connection.channel(), "orders.restored") == BODIES
        assert drain(connection.channel(), "back") == [b"3", b"1"]
    said = leveretctl("restore_queue", "orders")
    assert said.status == 65
    assert "--at is needed" in said.err
    said = leveretctl("restore_queue", "never", at)
    assert said.status != 0
    assert "no queue 'never'" in said.err

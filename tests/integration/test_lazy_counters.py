"""Rules 4.4.4 and 4.5.1 to 4.5.3: where the HTTP API says that messages are, and that it is true."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.bounded import QUORUM, refill
from tests.conformance.topology import drain, got
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.wire import Channel, Connection

LAZY: Triple = ("x-queue-mode", "S", "lazy")
PERSISTENT, TRANSIENT = {"delivery_mode": 2}, {"delivery_mode": 1}
KEYS = ("messages_ram", "message_bytes_ram", "messages_persistent", "message_bytes_persistent")
durably = pytest.mark.parametrize("durable", [False, True], ids=["transient", "durable"])


@pytest.fixture
def channel(process: LeveretProcess) -> Iterator[Channel]:
    with Connection(process.url, timeout=120) as connection:
        yield connection.channel()


class Shown:
    """What the API shows of a queue `q`, which is new."""

    def __init__(self, process: LeveretProcess, channel: Channel) -> None:
        self._process = process
        self._channel = channel
        channel.queue_delete("q")

    def declare(self, durable: bool, *arguments: Triple) -> None:
        self._channel.queue_declare("q", durable=durable, arguments=list(arguments))

    def fill(self, count: int, size: int, persistent: bool) -> None:
        """Publish messages of one size."""
        bodies = [b"%d:" % number + bytes(size - 1 - len(str(number))) for number in range(count)]
        refill(self._channel, "q", *bodies, **(PERSISTENT if persistent else TRANSIENT))

    def policy(self, definition: dict[str, Any]) -> None:
        """Set its policy, or clear it."""
        management = Management(self._process.http_url)
        if definition:
            management.request("PUT", "policies", "/", "q", body={"pattern": "^q$", "definition": definition})
        else:
            management.request("DELETE", "policies", "/", "q")

    def document(self) -> dict[str, Any]:
        """All of it."""
        found: dict[str, Any] = Management(self._process.http_url).request("GET", "queues", "/", "q")
        return found

    def counters(self) -> tuple[int, ...]:
        """Messages and bytes in memory, persistent messages and bytes."""
        found = self.document()
        return tuple(found[key] for key in KEYS)

    def comes_to(self, *counters: int) -> None:
        """Wait until the counters are these."""
        wait_until(lambda: self.counters() == counters, f"{KEYS} = {counters}, not {self.counters()}")


@pytest.fixture
def q(process: LeveretProcess, channel: Channel) -> Iterator[Shown]:
    yield Shown(process, channel)
    with Connection(process.url) as connection:
        connection.channel().queue_delete("q")


@durably
@pytest.mark.parametrize("persistent", [False, True])
def test_4_4_4_the_default_mode_keeps_all_in_memory(q: Shown, durable: bool, persistent: bool) -> None:
    q.declare(durable)
    q.fill(1000, 1000, persistent)
    kept = durable and persistent
    q.comes_to(1000, 1_000_000, 1000 * kept, 1_000_000 * kept)
    shown = q.document()
    assert (shown["messages"], shown["message_bytes"]) == (1000, 1_000_000)
    assert (shown["messages_paged_out"], shown["message_bytes_paged_out"]) == (0, 0)


@durably
@pytest.mark.parametrize("persistent", [False, True])
def test_4_4_4_the_lazy_mode_keeps_nothing_in_memory(q: Shown, durable: bool, persistent: bool) -> None:
    q.declare(durable, LAZY)
    q.fill(1000, 1000, persistent)
    kept = durable and persistent
    q.comes_to(0, 0, 1000 * kept, 1_000_000 * kept)
    shown = q.document()
    assert (shown["messages"], shown["messages_ready"], shown["message_bytes"]) == (1000, 1000, 1_000_000)
    paged_out = (0, 0) if kept else (1000, 1_000_000)
    assert (shown["messages_paged_out"], shown["message_bytes_paged_out"]) == paged_out
    assert shown["backing_queue_status"]["mode"] == "lazy"


@pytest.mark.parametrize("lazy", [False, True])
def test_4_5_1_unacked_messages_are_in_memory_and_count(q: Shown, channel: Channel, lazy: bool) -> None:
    q.declare(True, *([LAZY] if lazy else []))
    q.fill(10, 1000, True)
    held = [got(channel, "q") for _ in range(4)]
    ready = 0 if lazy else 6
    q.comes_to(ready + 4, (ready + 4) * 1000, 10, 10_000)
    shown = q.document()
    assert (shown["messages_ready_ram"], shown["messages_unacknowledged_ram"]) == (ready, 4)
    assert (shown["message_bytes"], shown["message_bytes_ready"]) == (10_000, 6000)
    channel.ack(held[0].delivery_tag)
    channel.nack(held[1].delivery_tag)
    channel.sync("q")
    ready = 0 if lazy else 7
    q.comes_to(ready + 2, (ready + 2) * 1000, 9, 9000)
    channel.recover()
    q.comes_to(0 if lazy else 9, 0 if lazy else 9000, 9, 9000)
    channel.queue_purge("q")
    q.comes_to(0, 0, 0, 0)


@pytest.mark.parametrize("lazy", [False, True])
def test_4_5_2_only_persistent_messages_count(q: Shown, channel: Channel, lazy: bool) -> None:
    q.declare(True, *([LAZY] if lazy else []))
    for _ in range(3):
        q.fill(10, 100, True)
        q.fill(5, 300, False)
    ram = (0, 0) if lazy else (45, 7500)
    q.comes_to(*ram, 30, 3000)
    for _ in range(12):
        got(channel, "q", no_ack=True)
    ram = (0, 0) if lazy else (33, 5900)
    q.comes_to(*ram, 20, 2000)
    assert len(drain(channel, "q")) == 33
    q.comes_to(0, 0, 0, 0)


@durably
def test_switching(q: Shown, channel: Channel, durable: bool) -> None:
    q.declare(durable)
    q.fill(3000, 1000, True)
    persistent = (3000, 3_000_000) if durable else (0, 0)
    q.comes_to(3000, 3_000_000, *persistent)
    q.policy({"queue-mode": "lazy"})
    q.comes_to(0, 0, *persistent)
    q.policy({"queue-mode": "default"})
    # All that is short enough comes back, up to storage.preload_messages.
    q.comes_to(3000, 3_000_000, *persistent)
    q.policy({"queue-mode": "lazy"})
    q.comes_to(0, 0, *persistent)
    # R: without a mode it is the default one.
    q.policy({})
    q.comes_to(3000, 3_000_000, *persistent)
    assert q.document()["backing_queue_status"]["mode"] == "default"
    assert len(drain(channel, "q")) == 3000


def test_long_bodies_are_not_loaded(q: Shown, channel: Channel) -> None:
    q.declare(True)
    q.policy({"queue-mode": "lazy"})
    for _ in range(20):
        q.fill(1, 1000, True)
        q.fill(1, 5000, True)
    q.comes_to(0, 0, 40, 120_000)
    q.policy({"queue-mode": "default"})
    q.comes_to(20, 20_000, 40, 120_000)
    q.fill(5, 5000, True)
    q.comes_to(25, 45_000, 45, 145_000)
    assert [len(body) for body in drain(channel, "q")] == [1000, 5000] * 20 + [5000] * 5
    q.policy({})


@pytest.fixture
def start(
    leveret_process: Callable[..., LeveretProcess],
) -> Callable[..., tuple[LeveretProcess, Callable[[], Connection]]]:
    """Start a broker with options; also gives a function that connects to it."""

    def started(**settings: object) -> tuple[LeveretProcess, Callable[[], Connection]]:
        process = leveret_process(settings={key.replace("__", "."): value for key, value in settings.items()})
        return process, lambda: Connection(process.url, timeout=120)

    return started


@pytest.mark.parametrize(
    ("preload", "below", "loaded"), [(16_384, 4096, 500), (100, 4096, 100), (0, 4096, 0), (16_384, 0, 0)]
)
def test_preload_options(
    start: Callable[..., tuple[LeveretProcess, Callable[[], Connection]]], preload: int, below: int, loaded: int
) -> None:
    process, connect = start(storage__preload_messages=preload, storage__embed_bodies_below=below)
    with connect() as connection:
        shown = Shown(process, connection.channel())
        shown.declare(True)
        shown.policy({"queue-mode": "lazy"})
        shown.fill(500, 100, True)
        shown.comes_to(0, 0, 500, 50_000)
        shown.policy({"queue-mode": "default"})
        shown.comes_to(loaded, loaded * 100, 500, 50_000)


@pytest.mark.parametrize("crash", [False, True])
def test_4_6_2_counters_after_a_restart(process: LeveretProcess, q: Shown, channel: Channel, crash: bool) -> None:
    q.declare(True, LAZY)
    q.fill(500, 1000, True)
    q.fill(500, 1000, False)
    held = got(channel, "q")
    channel.ack(held.delivery_tag)
    channel.sync("q")
    process.restart(crash=crash)
    q.comes_to(0, 0, 499, 499_000)
    shown = q.document()
    assert (shown["messages"], shown["message_bytes"]) == (499, 499_000)
    with Connection(process.url, timeout=120) as connection:
        again = connection.channel()
        assert got(again, "q").body[:2] == b"1:"
        q.comes_to(1, 1000, 499, 499_000)


def test_a_quorum_queue_has_fewer_counters(q: Shown) -> None:
    q.declare(True, QUORUM)
    q.fill(10, 100, True)
    shown = q.document()
    assert (shown["messages"], shown["messages_persistent"], shown["message_bytes_persistent"]) == (10, 10, 1000)
    assert "messages_ready_ram" not in shown


def test_a_lazy_backlog_takes_no_memory(process: LeveretProcess, q: Shown) -> None:
    q.declare(True, LAZY)
    q.fill(100, 1000, True)
    before = _resident(process)
    for _ in range(10):
        q.fill(3000, 1000, True)
    # 30 MB were published; the rest is what buffers and the allocator keep.
    assert _resident(process) - before < 15_000_000
    q.comes_to(0, 0, 30_100, 30_100_000)


def _resident(process: LeveretProcess) -> int:
    with open(f"/proc/{process.pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

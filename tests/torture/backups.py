"""Kill a broker that takes backups, or the process that takes them, again and again, and restore a moment each time.

python -m tests.torture.backups --kills 50 --seed 1

A ledger has when each message was sent, confirmed, and acknowledged. At a restored moment everything is there that was
confirmed before it and not acknowledged by then, and nothing that was sent later or settled before; so with messages
of a stream, delayed messages with their times, the place of a named consumer, purges, and a policy.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Event, Lock, Thread

import leveret
from leveret.analytics.backup.listing import verify
from leveret.analytics.backup.moments import spans
from leveret.analytics.backup.repository import Repository
from leveret.analytics.backup.restore import restore, selects
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Channel, Connection, ConnectionClosed, ConnectionDropped

#: Microseconds by which clocks of a client and the broker may differ.
_CLOCK = 20_000
_NEVER = 1 << 62
#: Microseconds that reading definitions and writing a tick may take on a busy machine.
_SLOW = 10_000_000
_DELAY_MS = 10_000_000
_PERSISTENT = {"delivery_mode": 2}


@dataclass(slots=True)
class Life:
    """What is known of a message, in microseconds since 1970."""

    sent: int
    confirmed: int = _NEVER
    settling: int = _NEVER
    settled: int = _NEVER


@dataclass(slots=True)
class Ledger:
    """What clients know."""

    queue: dict[bytes, Life] = field(default_factory=dict)
    stream: dict[bytes, Life] = field(default_factory=dict)
    delayed: dict[bytes, Life] = field(default_factory=dict)
    #: Places of the named consumer: when each was acknowledged, and when that was known.
    places: list[tuple[int, Life]] = field(default_factory=list)
    policies: list[tuple[int, Life]] = field(default_factory=list)


class BrokenPromiseError(Exception):
    """A restored moment is not what it was."""


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


def body_of(rng: random.Random, number: int) -> bytes:
    """A body that says whether it is whole."""
    rest = rng.randbytes(rng.choice((10, 200, 5000)))
    return b"%d:" % number + sha256(rest).hexdigest().encode() + rest


class Load:
    """Clients of a broker, each in a thread, until stop() or the broker's end."""

    def __init__(self, process: LeveretProcess, ledger: Ledger, seed: int) -> None:
        self._process = process
        self._ledger = ledger
        self._rng = random.Random(seed)
        self._stop = Event()
        #: While a message is unacknowledged, which a purge would leave.
        self._is_consuming = Lock()
        works = (self._publish, self._consume, self._purge, self._log, self._read, self._change)
        self._threads = [Thread(target=self._run, args=(each,), daemon=True) for each in works]
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """End all clients."""
        self._stop.set()
        for each in self._threads:
            each.join()

    def _run(self, work: Callable[[Channel], None]) -> None:
        try:
            with Connection(self._process.url) as connection:
                channel = connection.channel()
                while not self._stop.is_set():
                    work(channel)
        except (OSError, AssertionError, EOFError, ConnectionDropped, ConnectionClosed) as error:
            # The broker was killed, or this is told.
            if not self._stop.wait(5):
                sys.stderr.write(f"{work.__name__}: {type(error).__name__}: {error}\n")

    def _send(
        self, channel: Channel, lives: dict[bytes, Life], exchange: str, key: str, count: int, **properties: object
    ) -> None:
        bodies = [body_of(self._rng, len(lives) + each) for each in range(count)]
        confirming = channel.connection.channel()
        confirming.confirm_select()
        for body in bodies:
            lives[body] = Life(now())
            confirming.publish(exchange, key, body, _PERSISTENT | properties)
        if all(confirming.wait_for_confirms(count)):
            confirmed = now()
            for body in bodies:
                lives[body].confirmed = confirmed
        confirming.close()

    def _publish(self, channel: Channel) -> None:
        self._send(channel, self._ledger.queue, "", "q", self._rng.randrange(1, 60))
        if self._rng.random() < 0.1:
            headers = [("x-delay", "I", _DELAY_MS)]
            self._send(channel, self._ledger.delayed, "later", "q", 1, headers=headers)

    def _consume(self, channel: Channel) -> None:
        with self._is_consuming:
            self._take(channel)

    def _take(self, channel: Channel) -> None:
        found = channel.get("q")
        if found is None:
            time.sleep(0.01)
            return
        life = self._ledger.queue[found.body]
        life.settling = min(life.settling, now())
        channel.ack(found.delivery_tag)
        # What follows on the channel is after it.
        channel.queue_declare("q", passive=True)
        life.settled = min(life.settled, now())

    def _purge(self, channel: Channel) -> None:
        if self._stop.wait(self._rng.uniform(0.5, 4)):
            return
        with self._is_consuming:
            self._purge_all(channel)

    def _purge_all(self, channel: Channel) -> None:
        began = now()
        # It may take what is being sent.
        for life in self._ledger.queue.copy().values():
            life.settling = min(life.settling, began)
        there = {body for body, life in self._ledger.queue.copy().items() if life.confirmed < began}
        before = now()
        channel.queue_purge("q")
        after = now()
        for body in [*self._ledger.queue]:
            life = self._ledger.queue[body]
            if life.sent <= after and life.settling > before:
                life.settling = before
            if body in there:
                life.settled = min(life.settled, after)

    def _log(self, channel: Channel) -> None:
        self._send(channel, self._ledger.stream, "", "s", self._rng.randrange(1, 20))

    def _read(self, channel: Channel) -> None:
        api, places = Management(self._process.http_url), self._ledger.places
        place = self._rng.randrange(max(1, len(self._ledger.stream)))
        life = Life(now())
        places.append((place, life))
        api.request("PUT", "queues", "/", "s", "consumer-names", "reader", body={"next": place})
        life.confirmed = now()
        self._stop.wait(0.2)

    def _change(self, channel: Channel) -> None:
        api, policies = Management(self._process.http_url), self._ledger.policies
        value = len(policies) + 1
        life = Life(now())
        policies.append((value, life))
        body = {"pattern": "^none$", "definition": {"max-length": value}}
        api.request("PUT", "policies", "/", "p", body=body)
        life.confirmed = now()
        self._stop.wait(self._rng.uniform(0.2, 2))


def check_messages(
    what: str, found: Sequence[bytes], lives: dict[bytes, Life], moment: int, counts: Counter[str]
) -> None:
    """Compare messages with the ledger.

    Raises:
        BrokenPromiseError: They are not what was there.
    """
    there = set(found)
    if len(there) != len(found):
        raise BrokenPromiseError(f"{what}: {len(found) - len(there)} messages are there twice")
    for body in there:
        if body not in lives:
            raise BrokenPromiseError(f"{what}: a message that nobody sent: {body[:40]!r}")
        life = lives[body]
        if life.sent > moment + _CLOCK:
            raise BrokenPromiseError(f"{what}: a message from {life.sent - moment} µs later")
        if life.settled < moment - _CLOCK:
            raise BrokenPromiseError(f"{what}: a message that was settled {moment - life.settled} µs before")
    for body, life in lives.items():
        if life.confirmed < moment - _CLOCK and life.settling > moment + _CLOCK and body not in there:
            raise BrokenPromiseError(f"{what}: a message is missing, confirmed {moment - life.confirmed} µs before")
        counts["messages compared"] += 1
    order = [int(body.partition(b":")[0]) for body in found]
    if order != sorted(order):
        raise BrokenPromiseError(f"{what}: the messages are in another order")


def check_value(
    what: str, value: int, changes: Sequence[tuple[int, Life]], moment: int, slack: int, after: int
) -> None:
    """Compare a value that changes with the ledger.

    Raises:
        BrokenPromiseError: It was another one.
    """
    allowed = {each for each, life in changes if moment - slack <= life.confirmed and life.sent <= moment + after}
    allowed.update([each for each, life in changes if life.confirmed < moment - slack][-1:] or [0])
    if value not in allowed:
        later = [life.sent - moment for each, life in changes if each == value]
        raise BrokenPromiseError(f"{what} is {value}, of {later} µs later, and was one of {sorted(allowed)}")


def check(repository: Repository, directory: Path, rng: random.Random, ledger: Ledger, counts: Counter[str]) -> None:
    """Restore a moment, and compare it.

    Raises:
        BrokenPromiseError: It is not what it was.
    """
    backups = repository.backups()
    first, last = spans(backups)[-1]
    at = None if rng.random() < 0.5 else rng.randrange(first, last + 1)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    data = directory / "data"
    found = restore(repository, str(data), at, selects(None, None))
    if found.written.damaged or found.missing:
        raise BrokenPromiseError(f"{found.written.damaged[:1]}, {found.missing} files are missing")
    moment = found.time
    wanted = moment if at is None else at
    if at is not None and not 0 <= at - moment < 30_000_000:
        raise BrokenPromiseError(f"asked for {at}, got {moment}")
    before = [each.time for each in backups if each.time <= wanted]
    after = [each.time for each in backups if each.time >= wanted]
    slack = _SLOW + (after[0] - before[-1] if after else 0)
    for name, lives in (("q", ledger.queue), ("s", ledger.stream)):
        bodies = leveret.scan(data, queue=name, columns=["body"]).read_all()["body"].to_pylist()
        check_messages(name, bodies, lives, moment, counts)
    waiting = leveret.scan(data, "delayed", columns=["body", "due_at"]).read_all()
    check_messages("later", waiting["body"].to_pylist(), ledger.delayed, moment, counts)
    for body, due in zip(waiting["body"].to_pylist(), waiting["due_at"].to_pylist(), strict=True):
        life, due_us = ledger.delayed[body], int(due.timestamp() * 1e6) - _DELAY_MS * 1000
        if not life.sent - _CLOCK <= due_us <= min(life.confirmed, life.sent + 60_000_000) + _CLOCK:
            raise BrokenPromiseError(f"a delayed message is due {due_us - life.sent} µs later than it was sent for")
    with LeveretProcess(directory) as process:
        api = Management(process.http_url)
        names = api.request("GET", "queues", "/", "s", "consumer-names")
        check_value(
            "the consumer's place", names[0]["next_offset"] if names else 0, ledger.places, moment, _SLOW, _CLOCK
        )
        policies = api.request("GET", "policies", "/")
        value = policies[0]["definition"]["max-length"] if policies else 0
        check_value("the policy", value, ledger.policies, moment, slack, _SLOW)
    counts["moments between backups" if at is not None else "newest backups"] += 1


def declare(process: LeveretProcess) -> None:
    """Declare what the load uses."""
    with Connection(process.url) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.queue_declare("s", durable=True, arguments=[("x-queue-type", "S", "stream")])
        arguments = [("x-delayed-type", "S", "direct")]
        channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=arguments)
        channel.queue_bind("q", "later", "q")


def children(process: LeveretProcess) -> list[int]:
    """Return the processes that take backups for a broker."""
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(each) for each in found]


def run(directory: Path, kills: int, seed: int) -> Counter[str]:
    """Kill and restore.

    Raises:
        BrokenPromiseError: Something was restored that was not so.
    """
    rng, ledger, counts = random.Random(seed), Ledger(), Counter[str]()
    settings: dict[str, object] = {
        "backup.url": directory / "backup",
        "backup.interval": "5s",
        "backup.log_interval": "1s",
        "storage.segment_size": 262_144,
    }
    repository = Repository(str(directory / "backup"))
    with LeveretProcess(directory, settings=settings) as process:
        declare(process)
        wait_until(lambda: bool(repository.backups()), "the first backup")
        for number in range(kills):
            load = Load(process, ledger, rng.randrange(1 << 32))
            time.sleep(rng.uniform(0.5, 6))
            victim = rng.choice(("broker", "backup", "both"))
            if victim != "broker":
                for each in children(process):
                    os.kill(each, signal.SIGKILL)
            if victim != "backup":
                process.kill()
            counts[f"killed: {victim}"] += 1
            load.stop()
            check(repository, directory / "restored", rng, ledger, counts)
            if victim != "backup":
                process.start()
            taken = len(repository.backups())
            wait_until(lambda: len(repository.backups()) > taken, "a backup after the kill")  # noqa: B023
            sys.stdout.write(f"{number + 1} of {kills}: {victim}\n")
            sys.stdout.flush()
    found = verify(repository)
    if found.damage:
        raise BrokenPromiseError(found.damage[0])
    confirmed = [*ledger.queue.values(), *ledger.stream.values(), *ledger.delayed.values()]
    counts["messages confirmed"] = sum(life.confirmed < _NEVER for life in confirmed)
    counts["policies"], counts["backups"] = len(ledger.policies), len(found.backups)
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, and print what was compared; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="tests.torture.backups", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50, help="how many; default: 50")
    parser.add_argument("--seed", type=int, default=1, help="of all that is decided by lot; default: 1")
    given = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="leveret-backups-"))
    try:
        counts = run(directory, given.kills, given.seed)
    except BrokenPromiseError as error:
        sys.stdout.write(f"{error}; see {directory}\n")
        return 1
    shutil.rmtree(directory)
    sys.stdout.write(", ".join(f"{name}: {count}" for name, count in sorted(counts.items())) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

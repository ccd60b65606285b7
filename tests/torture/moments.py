"""Compares random moments of a backup with what clients of the broker knew at that time.

python -m tests.torture.moments --seconds 3600 --moments 20

A broker with `backup.url` has queues of several kinds, a stream with a named consumer, and delayed messages. Each queue
is filled, consumed, purged, limited by a policy that comes and goes, deleted and declared again. Then moments are
restored with `--at`: everything is there that was confirmed before and neither acknowledged, purged, dropped nor
deleted by then, in order, and nothing else; and so are the queues, the policies and the consumer's place. The same is
true of what `--queues` restores at every second moment, and of what `--into` publishes at the others.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, NamedTuple

import leveret
from leveret.analytics.backup.listing import verify
from leveret.analytics.backup.moments import shown_time, spans
from leveret.analytics.backup.repository import Repository
from leveret.analytics.times import parse_time
from leveret.storage.snapshots.snapshot import SnapshotError
from tests.conformance.streams import offset
from tests.integration.program import run as run_program
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.wire import Channel, Connection
from tests.torture.backups import BrokenPromiseError, Life, body_of, check_messages, now

_KINDS: Final[dict[str, list[Triple]]] = {
    "plain": [],
    "lazy": [("x-queue-mode", "S", "lazy")],
    "quorum": [("x-queue-type", "S", "quorum")],
    "priority": [("x-max-priority", "I", 3)],
}
_PERSISTENT: Final = {"delivery_mode": 2}
_NEVER: Final = 1 << 62
#: Microseconds by which definitions, a consumer's place and the time of a tick may be off on a busy machine.
_SLOW: Final = 10_000_000
_DELAYS_MS: Final = (1000, 20_000, 300_000)
#: Messages that stay unacknowledged while others come and go.
_UNACKNOWLEDGED: Final = 20
_READY_MAX: Final = 2000
#: Seconds after which what is counted is written.
_TELL_SECONDS: Final = 60.0


class Off(NamedTuple):
    """How many microseconds what was restored may be off, at most, by what it is."""

    what: str
    us: int


@dataclass(slots=True)
class Values:
    """Values of something that changes, each with when it was set."""

    changes: list[tuple[Any, Life]] = field(default_factory=list)

    def begin(self, value: Any) -> Life:
        """Note that a value is being set."""
        life = Life(now())
        self.changes.append((value, life))
        return life

    def off(self, value: Any, moment: int) -> int:
        """Return how many microseconds a moment is away from a time with this value."""
        until = [later.confirmed for _, (_, later) in pairwise(self.changes)] + [_NEVER]
        found = [
            max(0, life.sent - moment, moment - end)
            for (each, life), end in zip(self.changes, until, strict=True)
            if each == value
        ]
        return min(found, default=_NEVER)


def key_of(body: bytes) -> bytes:
    """Return what the ledger knows a body by, and see that it is whole.

    Raises:
        BrokenPromiseError: It is not.
    """
    number, _, rest = body.partition(b":")
    if sha256(rest[64:]).hexdigest().encode() != rest[:64]:
        raise BrokenPromiseError(f"a message has changed: {body[:40]!r}")
    return number + b":" + rest[:64]


class Line:
    """A queue, a client that does one thing after another to it, and what the client knows.

    Args:
        kind: See _KINDS; or `stream`, or `delayed`.
        pace: Seconds between two actions, on average.
        seed: Of what is decided by lot.
    """

    def __init__(self, process: LeveretProcess, kind: str, pace: float, seed: int) -> None:
        self.name = kind
        self._api = Management(process.http_url)
        self._process = process
        self._pace = pace
        self._rng = random.Random(seed)
        self.lives: dict[bytes, Life] = {}
        self.exists, self.limit = Values([(False, Life(0, 0))]), Values([(None, Life(0, 0))])
        self.done: Counter[str] = Counter()
        #: What is ready, the oldest first, and what is not acknowledged, with delivery tags.
        self._ready: list[bytes] = []
        self._taken: list[tuple[int, bytes]] = []
        self._end = Event()
        self.error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Ask it to end."""
        self._end.set()

    def join(self) -> None:
        """Wait until it has ended.

        Raises:
            BrokenPromiseError: It has failed.
        """
        self._thread.join()
        if self.error is not None:
            raise BrokenPromiseError(f"{self.name}: {type(self.error).__name__}: {self.error}")

    def _run(self) -> None:
        try:
            with Connection(self._process.url, timeout=120) as connection:
                self._channel = connection.channel()
                self._limit_to(None)
                self._declare()
                while not self._end.wait(self._rng.uniform(0, 2 * self._pace)):
                    self._act()
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def _act(self) -> None:
        chance = self._rng.random()
        if chance < 0.5 and len(self._ready) < _READY_MAX:
            self._publish()
        elif chance < 0.97:
            self._consume()
        elif chance < 0.98:
            self._purge()
        elif chance < 0.99:
            self._delete()
        elif self.name != "priority":
            # Which messages of a priority queue are dropped is another test's matter.
            limits = [limit for limit in (None, 5, 50) if limit != self.limit.changes[-1][0]]
            self._limit_to(self._rng.choice(limits))

    # --- what is done -------------------------------------------------------------------------------------------------

    def _declare(self) -> None:
        life = self.exists.begin(True)
        self._channel.queue_declare(self.name, durable=True, arguments=_KINDS.get(self.name, []))
        life.confirmed = now()

    def _send(self, exchange: str, key: str, count: int, properties: Sequence[dict[str, Any]] = ()) -> list[bytes]:
        """Publish messages, and wait until they are confirmed; return their keys."""
        first = len(self.lives)
        bodies = [body_of(self._rng, first + each) for each in range(count)]
        keys = [key_of(body) for body in bodies]
        confirming = self._channel.connection.channel()
        confirming.confirm_select()
        for at, body in enumerate(bodies):
            self.lives[keys[at]] = Life(now())
            confirming.publish(exchange, key, body, _PERSISTENT | (properties[at] if properties else {}))
        answers = confirming.wait_for_confirms(count)
        confirmed = now()
        confirming.close()
        assert all(answers), "a message was refused"
        for each in keys:
            self.lives[each].confirmed = confirmed
        self.done["confirmed"] += count
        return keys

    def _publish(self) -> None:
        count, began = self._rng.randrange(1, 60), now()
        first = len(self.lives)
        properties = [{"priority": level_of(first + each)} for each in range(count)] if self.name == "priority" else ()
        self._ready += self._send("", self.name, count, properties)
        self._drop(began)

    def _consume(self) -> None:
        while len(self._taken) < _UNACKNOWLEDGED and (found := self._channel.get(self.name)) is not None:
            key = key_of(found.body)
            # The first of its level is delivered, and so the highest level.
            expected = max(self._ready, key=lambda each: level_of(number_of(each))) if self._is_levelled else None
            assert key == (expected or self._ready[0]), "a message was delivered out of its turn"
            self._ready.remove(key)
            self._taken.append((found.delivery_tag, key))
        settled = self._taken[: self._rng.randrange(len(self._taken) + 1)]
        del self._taken[: len(settled)]
        self._begin_to_settle([key for _, key in settled])
        for tag, _ in settled:
            self._channel.ack(tag)
        # What follows on the channel is after it.
        self._channel.sync(self.name)
        self._settle("acknowledged", [key for _, key in settled])

    @property
    def _is_levelled(self) -> bool:
        return self.name == "priority"

    def _purge(self) -> None:
        self._begin_to_settle(self._ready)
        found = self._channel.queue_purge(self.name)
        assert found.message_count == len(self._ready), f"{found.message_count} purged, not {len(self._ready)}"
        self._settle("purged", self._ready)
        self._ready = []

    def _delete(self) -> None:
        there = [*self._ready, *(key for _, key in self._taken)]
        self._begin_to_settle(there)
        life = self.exists.begin(False)
        self._channel.queue_delete(self.name)
        life.confirmed = now()
        self._settle("deleted", there)
        for tag, _ in self._taken:
            # The channel would be closed if they were not acknowledged at all; there is no queue to note that.
            self._channel.ack(tag)
        self._ready, self._taken = [], []
        self.done["deletes"] += 1
        self._end.wait(self._rng.uniform(0, 3))
        self._declare()

    def _limit_to(self, limit: int | None) -> None:
        """Set a policy that limits the queue, or clear it."""
        life, began = self.limit.begin(limit), now()
        if limit is None:
            with suppress(OSError):
                # There is none at first.
                self._api.request("DELETE", "policies", "/", self.name)
        else:
            body = {"pattern": f"^{self.name}$", "definition": {"max-length": limit}, "apply-to": "queues"}
            self._api.request("PUT", "policies", "/", self.name, body=body)
        life.confirmed = now()
        self.done["policies"] += 1
        self._drop(began)

    def _drop(self, began: int) -> None:
        """Wait until the queue has no more messages than its policy lets it have."""
        limit = self.limit.changes[-1][0]
        if limit is None or len(self._ready) <= limit:
            return
        dropped = self._ready[:-limit]
        for key in dropped:
            life = self.lives[key]
            life.settling = max(began, life.sent)

        def is_dropped() -> bool:
            return bool(self._channel.queue_declare(self.name, passive=True).message_count <= limit)

        wait_until(is_dropped, "the queue drops what is too much")
        self._settle("dropped", dropped)
        self._ready = self._ready[-limit:]

    def _begin_to_settle(self, keys: Sequence[bytes]) -> None:
        began = now()
        for key in keys:
            self.lives[key].settling = began

    def _settle(self, how: str, keys: Sequence[bytes]) -> None:
        settled = now()
        for key in keys:
            self.lives[key].settled = settled
        self.done[how] += len(keys)

    # --- what is restored ---------------------------------------------------------------------------------------------

    def check(self, data: Path, moment: int, counts: Counter[str]) -> int:
        """Compare the messages of a restored data directory; return how many there are in the queue.

        Raises:
            BrokenPromiseError: They are not those of the moment.
        """
        found = [key_of(body) for body in bodies_in(data, self.name)]
        self.compare(found, moment, counts)
        return len(found)

    def compare(self, found: Sequence[bytes], moment: int, counts: Counter[str]) -> None:
        """Compare the keys of messages, which are in order within a level; raises as check()."""
        for level in range(4) if self._is_levelled else (None,):
            lives, there = self.lives, found
            if level is not None:
                lives = {key: life for key, life in lives.items() if level_of(number_of(key)) == level}
                there = [key for key in found if level_of(number_of(key)) == level]
            check_messages(f"{self.name} at {shown_time(moment)}", there, lives, moment, counts)

    def check_published(self, channel: Channel, queue: str, moment: int, counts: Counter[str]) -> None:
        """Compare what was published to a queue, and remove it; raises as check()."""
        found: list[bytes] = []
        while (message := channel.get(queue, no_ack=True)) is not None:
            found.append(key_of(message.body))
        self.compare(found, moment, counts)
        levels = [level_of(number_of(key)) for key in found] if self._is_levelled else []
        if levels != sorted(levels, reverse=True):
            raise BrokenPromiseError(f"{queue} at {shown_time(moment)} is not in the order of its levels")
        counts["published by --into"] += len(found)


class StreamLine(Line):
    """A stream, and its consumer with a name."""

    def __init__(self, process: LeveretProcess, kind: str, pace: float, seed: int) -> None:
        super().__init__(process, kind, pace, seed)
        self.places = Values([(0, Life(0, 0))])
        self._consuming: Channel | None = None

    def _declare(self) -> None:
        life = self.exists.begin(True)
        self._channel.queue_declare(self.name, durable=True, arguments=[("x-queue-type", "S", "stream")])
        life.confirmed = now()
        self._consuming = self._channel.connection.channel()
        self._consuming.qos(500)
        name: list[Triple] = [("x-stream-consumer-name", "S", "reader"), ("x-stream-offset", "S", "first")]
        self._consuming.consume(self.name, arguments=name)

    def _act(self) -> None:
        assert self._consuming is not None
        if self._rng.random() < 0.3:
            self._send("", self.name, self._rng.randrange(1, 60))
            return
        self._consuming.sync(self.name)
        pending = self._consuming.pending
        if pending:
            found = [pending.popleft() for _ in range(self._rng.randrange(1, len(pending) + 1))]
            life = self.places.begin(offset(found[-1]) + 1)
            self._consuming.ack(found[-1].delivery_tag, multiple=True)
            self._consuming.sync(self.name)
            life.confirmed = now()
            self.done["read"] += len(found)


class DelayedLine(Line):
    """Messages that wait in an exchange, and go to a queue when they are due."""

    def __init__(self, process: LeveretProcess, kind: str, pace: float, seed: int) -> None:
        super().__init__(process, kind, pace, seed)
        self._delays: dict[bytes, int] = {}

    def _declare(self) -> None:
        super()._declare()
        self._channel.exchange_declare(
            "later", "x-delayed-message", durable=True, arguments=[("x-delayed-type", "S", "direct")]
        )
        self._channel.queue_bind(self.name, "later", "k")

    def _act(self) -> None:
        if self._rng.random() < 0.5:
            delays = [self._rng.choice(_DELAYS_MS) for _ in range(self._rng.randrange(1, 20))]
            headers = [{"headers": [("x-delay", "I", delay)]} for delay in delays]
            keys = self._send("later", "k", len(delays), headers)
            self._delays.update(zip(keys, delays, strict=True))
            return
        for _ in range(self._rng.randrange(40)):
            found = self._channel.get(self.name)
            if found is None:
                break
            key = key_of(found.body)
            self._begin_to_settle([key])
            self._channel.ack(found.delivery_tag)
            self._channel.sync(self.name)
            self._settle("acknowledged", [key])

    def check(self, data: Path, moment: int, counts: Counter[str]) -> int:
        """Compare; each message is in the exchange until it is due, and then in the queue."""
        found = leveret.scan(data, "delayed", columns=["body", "due_at"]).read_all()
        waiting = [key_of(body) for body in found["body"].to_pylist()]
        there = [key_of(body) for body in bodies_in(data, self.name)]
        at = f"{self.name} at {shown_time(moment)}"
        check_messages(at, sorted(waiting + there, key=number_of), self.lives, moment, counts)
        for key, due in zip(waiting, found["due_at"].to_pylist(), strict=True):
            life, delay_us = self.lives[key], self._delays[key] * 1000
            off = int(due.timestamp() * 1e6) - delay_us
            if not life.sent - _SLOW <= off <= life.confirmed + _SLOW or off + delay_us < moment - _SLOW:
                raise BrokenPromiseError(f"{at}: a message is due {off - life.sent} µs after it should be")
        for key in there:
            if self.lives[key].sent + self._delays[key] * 1000 > moment + 20_000:
                raise BrokenPromiseError(f"{at}: a message is in the queue before it is due")
        counts["delayed, not due"] += len(waiting)
        return len(there)


def number_of(key: bytes) -> int:
    """Return the number of a message."""
    return int(key.partition(b":")[0])


def level_of(number: int) -> int:
    """Return the priority of a message."""
    return number * 7 // 3 % 4


def bodies_in(data: Path, queue: str) -> list[bytes]:
    """Return the messages of a queue; none if it does not exist."""
    with suppress(SnapshotError):
        return list(leveret.scan(data, queue=queue, columns=["body"]).read_all()["body"].to_pylist())
    return []


def restored(repository: Path, at: int, *arguments: str) -> str:
    """Restore a moment; return what the command says.

    Raises:
        BrokenPromiseError: It fails.
    """
    said = run_program("restore", "--from", str(repository), "--at", f"{at / 1e6:.6f}", *arguments)
    if said.returncode:
        raise BrokenPromiseError(f"restore --at {shown_time(at)} ends with {said.returncode}: {said.stderr}")
    return said.stdout


def check_some(
    repository: Path, directory: Path, at: int, moment: int, lines: Sequence[Line], counts: Counter[str]
) -> None:
    """Restore some queues of a moment into a directory, and compare them; raises as check()."""
    data = directory / "some"
    chosen = [line for line in lines if line.name[0] in "pq"]
    restored(repository, at, "--data-dir", str(data), "--queues", "p*,quorum")
    for line in lines:
        if line in chosen:
            counts["restored by --queues"] += line.check(data, moment, counts)
        elif bodies_in(data, line.name):
            raise BrokenPromiseError(f"{line.name} at {shown_time(moment)} has messages, and was not asked for")


def check_into(
    repository: Path, process: LeveretProcess, at: int, moment: int, lines: Sequence[Line], counts: Counter[str]
) -> None:
    """Publish queues of a moment into a broker, and compare them; raises as check()."""
    if not lines:
        return
    restored(repository, at, "--queues", ",".join(line.name for line in lines), "--into", process.url)
    with Connection(process.url) as connection:
        for line in lines:
            line.check_published(connection.channel(), f"{line.name}.restored", moment, counts)


def check(
    repository: Path, directory: Path, at: int, lines: Sequence[Line], counts: Counter[str], is_into: bool
) -> list[Off]:
    """Restore a moment, and compare it; return how far what need not be exact is off.

    Args:
        is_into: Whether some queues are published into a broker, too; otherwise they are restored into a directory.
    Raises:
        BrokenPromiseError: It is not what it was.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    data = directory / "data"
    said = restored(repository, at, "--data-dir", str(data))
    # It is shown in milliseconds, rounded up.
    moment = parse_time(said.partition(" is as it was at ")[2].partition(": ")[0])
    off = [Off("time of the moment", max(at, moment) - moment)]
    expected = {line.name: line.check(data, moment, counts) for line in lines}
    if not is_into:
        check_some(repository, directory, at, moment, lines, counts)
    with LeveretProcess(directory) as process:
        if is_into:
            queued = [line for line in lines if line.name in _KINDS and expected[line.name]]
            check_into(repository, process, at, moment, queued, counts)
        api = Management(process.http_url)
        policies = {each["name"]: each["definition"]["max-length"] for each in api.request("GET", "policies", "/")}
        queues = {each["name"] for each in api.request("GET", "queues", "/")}
        with Connection(process.url) as connection:
            for line in lines:
                off.append(Off(f"queue {line.name}", line.exists.off(line.name in queues, moment)))
                off.append(Off(f"policy of {line.name}", line.limit.off(policies.get(line.name), moment)))
                if line.name in queues and line.name not in policies and not isinstance(line, DelayedLine):
                    count = connection.channel().queue_declare(line.name, passive=True).message_count
                    if count != expected[line.name]:
                        raise BrokenPromiseError(
                            f"{line.name} at {shown_time(moment)} has {count} messages, not {expected[line.name]}"
                        )
                if line.name in queues and isinstance(line, StreamLine):
                    names = api.request("GET", "queues", "/", line.name, "consumer-names")
                    place = names[0]["next_offset"] if names else 0
                    off.append(Off("consumer's place", line.places.off(place, moment)))
        if "Traceback" in process.log_text():
            raise BrokenPromiseError(f"there is a traceback in {process.log}")
    for what, us in off:
        if not 0 <= us <= _SLOW:
            raise BrokenPromiseError(f"{what} at {shown_time(moment)} is that of {us} µs away")
    return off


def run(directory: Path, seconds: float, moments: int, seed: int, pace: float = 0.5) -> tuple[Counter[str], list[Off]]:
    """Let clients use a broker, then restore moments.

    Args:
        seconds: How long they use it.
        moments: How many moments are restored.
        seed: Of all that is decided by lot.
        pace: Seconds between two actions of a client, on average.
    Returns:
        What was done and compared, and the largest of what was off.
    Raises:
        BrokenPromiseError: A moment is not what it was.
    """
    rng, counts, off = random.Random(seed), Counter[str](), dict[str, int]()
    url = directory / "backup"
    settings: dict[str, object] = {
        "backup.url": url,
        "backup.interval": "1min",
        "backup.log_interval": "5s",
        "storage.segment_size": 1 << 20,
    }
    repository = Repository(str(url))
    with LeveretProcess(directory, settings=settings) as process:
        lines: list[Line] = [Line(process, kind, pace, rng.randrange(1 << 32)) for kind in _KINDS]
        lines.append(StreamLine(process, "stream", pace, rng.randrange(1 << 32)))
        lines.append(DelayedLine(process, "delayed", pace, rng.randrange(1 << 32)))
        wait_until(lambda: bool(repository.backups()), "the first backup")
        first = now()
        for line in lines:
            line.start()
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not any(line.error for line in lines):
            time.sleep(min(left, _TELL_SECONDS))
            _say(f"{sum(line.done['confirmed'] for line in lines)} messages, {left:.0f} s left")
        last = now()
        # The moments have what comes after them, as they do in life.
        wait_until(lambda: spans(repository.backups())[-1][1] > last, "a backup of the last moment")
        for line in lines:
            line.end()
        for line in lines:
            line.join()
            counts.update(line.done)
        if len(spans(repository.backups())) > 1:
            raise BrokenPromiseError(f"moments are missing: {spans(repository.backups())}")
        for number in range(moments):
            at = rng.randrange(first, last)
            for each in check(url, directory / "restored", at, lines, counts, number % 2 == 1):
                kind = each.what.partition(" of ")[0].partition(" ")[0]
                off[kind] = max(off.get(kind, 0), each.us)
            _say(f"{number + 1} of {moments}: {shown_time(at)}")
    found = verify(repository)
    if found.damage:
        raise BrokenPromiseError(found.damage[0])
    counts["backups"], counts["moments"] = len(found.backups), moments
    return counts, [Off(what, us) for what, us in off.items()]


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, and print what was compared; return 1 if a moment was not what it was."""
    parser = argparse.ArgumentParser(prog="tests.torture.moments", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600, help="how long there is traffic; default: 3600")
    parser.add_argument("--moments", type=int, default=20, help="how many are restored; default: 20")
    parser.add_argument("--seed", type=int, default=1, help="of all that is decided by lot; default: 1")
    given = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="leveret-moments-"))
    try:
        counts, off = run(directory, given.seconds, given.moments, given.seed)
    except BrokenPromiseError as error:
        sys.stdout.write(f"{error}; see {directory}\n")
        return 1
    shutil.rmtree(directory)
    sys.stdout.write(", ".join(f"{name}: {count}" for name, count in sorted(counts.items())) + "\n")
    sys.stdout.write("off at most: " + ", ".join(f"{each.what} {each.us / 1e6:.3f} s" for each in off) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

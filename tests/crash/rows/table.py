"""The table of what is there again after a broker's end: each row declares, loads, and expects.

All rows use one broker and end with it. A row is a generator function: it gets a `Place`, and where it yields, the
broker ends and starts again; it gets a channel to it, and may go on to the next end. It yields the time before which
the broker may not start again, as time.monotonic() says it, or None.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.conformance.bounded import refill
from tests.crash.comparison import End
from tests.integration.restarts import PERSISTENT
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.wire import Channel, Connection
from tests.torture.preloaded_disk import PreloadedDisk, build

Steps: TypeAlias = Generator[Any, Channel, None]
Row: TypeAlias = Callable[..., Steps]

LAZY: Final[Triple] = ("x-queue-mode", "S", "lazy")
_TIMEOUT: Final = 120.0


@dataclass
class _Entry:
    make: Row
    arguments: tuple[Any, ...]
    is_late: bool
    ends: frozenset[End]

    @property
    def name(self) -> str:
        return f"{self.make.__module__.rpartition('.')[2]}.{self.make.__name__}{list(self.arguments) or ''}"


ROWS: Final[list[_Entry]] = []


def row(*variants: Any, late: bool = False, ends: frozenset[End] = frozenset(End)) -> Callable[[Row], Row]:
    """Make a function a row, or a row for each variant, which it gets after the place.

    Args:
        variants: One argument each, or a tuple of them.
        late: It loads after the others, shortly before the end.
        ends: Those to which it is put.
    """

    def add(make: Row) -> Row:
        for each in variants or ((),):
            ROWS.append(_Entry(make, each if isinstance(each, tuple) else (each,), late, ends))
        return make

    return add


@dataclass
class Place:
    """The broker, and the connections of one row.

    Attributes:
        process: The broker.
        end: How it ends.
    """

    process: LeveretProcess
    end: End
    _connections: list[Connection] = field(default_factory=list)

    @property
    def is_stopped(self) -> bool:
        """Whether it ends in order."""
        return self.end is End.STOP

    def connect(self, vhost: str = "/") -> Connection:
        """Return a new connection."""
        self._connections.append(Connection(self.process.url, vhost=vhost, timeout=_TIMEOUT))
        return self._connections[-1]

    def channel(self) -> Channel:
        """Return a channel of a new connection."""
        return self.connect().channel()

    def disconnect(self) -> None:
        """Drop all connections."""
        for connection in self._connections:
            connection.abort()
        self._connections.clear()

    @staticmethod
    def new(hint: str = "q") -> str:
        """Return a name that nothing has yet."""
        return f"{hint}.{uuid.uuid4().hex[:12]}"

    def queue(self, channel: Channel, *arguments: Triple, hint: str = "q", **options: Any) -> str:
        """Declare a durable queue of a new name; return the name."""
        name = self.new(hint)
        channel.queue_declare(name, arguments=list(arguments), **{"durable": True, **options})
        return name

    @property
    def management(self) -> Management:
        """The HTTP API."""
        return Management(self.process.http_url)

    def policy(self, queue: str, definition: dict[str, Any], kind: str = "policies") -> None:
        """Give a queue a policy of its own."""
        body = {"pattern": f"^{queue}$", "definition": definition, "apply-to": "queues"}
        self.management.request("PUT", kind, "/", queue, body=body)


def run_rows(end: End, directory: Path, seed: int) -> None:
    """Have all rows load a broker, end it, and look at what they find, as often as they want.

    Args:
        end: How the broker ends.
        directory: Where its data directory is made.
        seed: Of what a loss of power leaves.

    Raises:
        ExceptionGroup: Rows have not found what they expected.
    """
    for path in sorted(Path(__file__).parent.glob("*.py")):
        import_module(f"tests.crash.rows.{path.stem}")
    entries = sorted((each for each in ROWS if end in each.ends), key=lambda each: each.is_late)
    rng, data = random.Random(seed), directory.resolve() / "data"
    data.mkdir(mode=0o750)
    disk = PreloadedDisk(build(directory), data, directory.resolve()) if end is End.POWER else None
    failures: list[Exception] = []
    with LeveretProcess(
        directory.resolve(),
        # The rows do not answer connection.close.
        settings={"shutdown_timeout": 500},
        environment=disk.environment if disk else None,
        before_kill=disk.stop_between_calls if disk else None,
    ) as process:
        work = [(each, place, each.make(place, *each.arguments)) for each in entries for place in [Place(process, end)]]
        is_first = True
        while work:
            going, earliest = [], 0.0
            for entry, place, steps in work:
                try:
                    yielded = next(steps) if is_first else steps.send(place.channel())
                except StopIteration:
                    place.disconnect()
                except Exception as error:  # noqa: BLE001 - the other rows go on
                    error.add_note(f"in row {entry.name}")
                    failures.append(error)
                    place.disconnect()
                else:
                    earliest = max(earliest, yielded or 0.0)
                    going.append((entry, place, steps))
            work, is_first = going, False
            if work:
                _end(process, end)
                for _, place, _ in work:
                    place.disconnect()
                if disk:
                    disk.cut_power(rng)
                time.sleep(max(0.0, earliest - time.monotonic()))
                process.start()
        log = process.log_text()
    if "Traceback" in log:
        failures.append(AssertionError(log[-3000:]))
    if failures:
        raise ExceptionGroup(f"after {end.value}", failures)


def _end(process: LeveretProcess, end: End) -> None:
    """Stop the broker, or kill it once all that has been done is on the disk, and only there."""
    if end is End.STOP:
        assert process.stop() == 0
        return
    with Connection(process.url, timeout=_TIMEOUT) as connection:
        channel = connection.channel()
        channel.queue_declare("marker", durable=True, arguments=[("x-max-length", "I", 1)])
        for _ in range(2):
            # What moves from queue to queue leaves the first one after a sync.
            refill(channel, "marker", b"", **PERSISTENT)
    process.kill()

"""The table of what is there again after a broker's end: each row declares, loads, and expects.

All rows use one broker and end with it. A row is a generator function. It gets its connections to the broker, and where
it yields, the broker ends and starts again; it gets a channel to it, and may go on to the next end. It yields None, or
the time, by the clock of time.monotonic(), before which the broker is not to start again.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

from leveret.analytics.backup.capture import Capture
from leveret.analytics.backup.repository import Repository
from leveret.analytics.backup.restore import restore
from tests.crash.comparison import End
from tests.integration.restarts import Restarts
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.tables import Triple
from tests.support.wire import Channel
from tests.torture.preloaded_disk import PreloadedDisk, build

#: What mypy wants for a yield without a value is Any.
Steps: TypeAlias = Generator[Any, Channel, None]
_Make: TypeAlias = Callable[..., Steps]

LAZY: Final[Triple] = ("x-queue-mode", "S", "lazy")


@dataclass
class _Row:
    make: _Make
    arguments: tuple[Any, ...]
    is_late: bool

    @property
    def name(self) -> str:
        return f"{self.make.__module__.rpartition('.')[2]}.{self.make.__name__}{list(self.arguments) or ''}"


_ROWS: Final[list[_Row]] = []


def row(*variants: Any, late: bool = False) -> Callable[[_Make], _Make]:
    """Make a function a row, or a row for each variant, which it gets after its connections."""

    def add(make: _Make) -> _Make:
        _ROWS.extend(_Row(make, each if isinstance(each, tuple) else (each,), late) for each in variants or ((),))
        return make

    return add


@dataclass
class _Work:
    """A row at work."""

    row: _Row
    place: Restarts

    def __post_init__(self) -> None:
        self._steps = self.row.make(self.place, *self.row.arguments)
        self._continue: Callable[[], Any] = lambda: next(self._steps)
        self.is_over = False
        self.failure: Exception | None = None
        self.earliest = 0.0

    def go_on(self) -> None:
        """Go on to the next end."""
        try:
            self.earliest = self._continue() or 0.0
        except StopIteration:
            self.is_over = True
        except Exception as error:  # noqa: BLE001 - the other rows go on
            error.add_note(f"in row {self.row.name}")
            self.failure, self.is_over = error, True
        if self.is_over:
            self.place.disconnect()
        self._continue = lambda: self._steps.send(self.place.channel())


#: On a quiet machine, the rows before those with messages that are due soon take less than half as many seconds.
_BUSY_SECONDS: Final = 4.0


class _Backups:
    """Backups of a broker's data directory, which is lost then."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._repository = Repository(str(directory / "backups"))

    def take(self, broker: Restarts) -> None:
        """Take a backup of all that there is now."""
        now = time.time_ns() // 1000
        # There is no tick, at which a backup is taken, if nothing is written after the last one.
        broker.wait_for_moves()
        with closing(Capture(str(self._directory / "data"), self._repository)) as capture:
            wait_until(lambda: capture.take().name.time > now, "a backup of what there is now")

    def restore(self) -> None:
        """Put what is restored in the place of the data directory."""
        restored = self._directory / "restored"
        found = restore(self._repository, str(restored), None, lambda queue: True)
        assert not found.missing
        assert not found.written.damaged
        shutil.rmtree(self._directory / "data")
        restored.rename(self._directory / "data")


def run_rows(end: End, directory: Path, seed: int) -> None:
    """Have all rows load a broker, end it, and look at what they find, as often as they want."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        import_module(f"tests.crash.rows.{path.stem}")
    directory, rng = directory.resolve(), random.Random(seed)
    (directory / "data").mkdir(mode=0o750)
    disk = PreloadedDisk(build(directory), directory / "data", directory) if end is End.POWER else None
    backups = _Backups(directory) if end is End.LOSS else None
    with LeveretProcess(
        directory,
        # The rows do not answer connection.close.
        settings={"shutdown_timeout": 500},
        environment=disk.environment if disk else None,
        before_kill=disk.stop_between_calls if disk else None,
    ) as process:
        broker, *places = (Restarts(process, end is not End.STOP) for _ in range(len(_ROWS) + 1))
        for place in places:
            place.slowness = 8 if backups else 1
        work = [_Work(each, place) for each, place in zip(_ROWS, places, strict=True)]
        work.sort(key=lambda each: each.row.is_late)
        began = time.monotonic()
        while True:
            late = next((each for each in work if each.row.is_late and not each.is_over), None)
            for each in work:
                if each is late:
                    # What is due soon is not to be due before the end, however busy the machine is.
                    for place in places:
                        place.slowness = max(place.slowness, 1 + round((time.monotonic() - began) / _BUSY_SECONDS))
                    if backups:
                        # Then the next one has little to send.
                        backups.take(broker)
                if not each.is_over:
                    each.go_on()
            if all(each.is_over for each in work):
                break
            if backups:
                backups.take(broker)
            broker.end()
            for place in places:
                place.disconnect()
            if disk:
                disk.cut_power(rng)
            if backups:
                backups.restore()
            time.sleep(max(0.0, max(each.earliest for each in work) - time.monotonic()))
            process.start()
        assert "Traceback" not in process.log_text()
    failures = [each.failure for each in work if each.failure]
    if failures:
        raise ExceptionGroup(f"after {end.value}", failures)

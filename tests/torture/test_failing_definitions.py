"""Every call of SQLite on the definitions fails once, in turn: what was answered is there after a loss of power.

`DEFINITIONS_STEP=1` tries all calls; otherwise only some are tried.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.leveret_process import LeveretProcess
from tests.support.wire import ChannelClosed, Connection, ConnectionClosed, ConnectionDropped
from tests.torture.preloaded_disk import Call, PreloadedDisk, build

_STEP: Final = int(os.environ.get("DEFINITIONS_STEP", "40"))
_QUEUES: Final = 6
_CALLS: Final = (Call.READ, Call.WRITE, Call.SYNC, Call.OPEN, Call.NAME)

pytestmark = pytest.mark.timeout(3600 if _STEP == 1 else 600)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("library"))


class Declared:
    """What clients were told is there, or gone."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.gone: set[str] = set()

    def work(self, url: str, turn: int) -> None:
        """Declare and delete queues, as long as that works."""
        try:
            with Connection(url, timeout=120) as connection:
                channel = connection.channel()
                for number in range(_QUEUES):
                    name = f"q{turn}-{number}"
                    channel.queue_declare(name, durable=True)
                    self.there.add(name)
                    channel.queue_bind(name, "amq.fanout", "")
                    if number % 3 == 2:
                        self.there.discard(name)
                        channel.queue_delete(name)
                        self.gone.add(name)
        except (ChannelClosed, ConnectionClosed, ConnectionDropped):
            pass

    def check(self, url: str) -> None:
        """Compare with a broker that has started again."""
        for name in sorted(self.there | self.gone):
            if name in self.there:
                assert _is_there(url, name), f"{name}: declare-ok came, and it is not there"
            else:
                assert not _is_there(url, name), f"{name}: delete-ok came, and it is there"


def _is_there(url: str, queue: str) -> bool:
    with Connection(url, timeout=120) as connection:
        try:
            connection.channel().queue_declare(queue, passive=True)
        except ChannelClosed:
            return False
        return True


def start(directory: Path, disk: PreloadedDisk) -> LeveretProcess:
    """Start a broker."""
    return LeveretProcess(directory.resolve(), settings={"log_level": "warning"}, environment=disk.environment)


def fail_one_call(library: Path, directory: Path, call: Call, after: int) -> bool:
    """Let a call fail while a broker starts and works; return whether there was one."""
    data = directory.resolve() / "data"
    data.mkdir(mode=0o750, parents=True)
    disk = PreloadedDisk(library, data, directory, only="definitions")
    declared = Declared()
    disk.fail(call, after)
    refusal, process, was_hit = "", None, False
    try:
        process = start(directory, disk)
    except RuntimeError as error:
        refusal = str(error)
    if process is None:
        assert len(refusal.splitlines()) == 2, f"refused in more than one line: {refusal}"
        was_hit = disk.succeed(call) > 0
        process = start(directory, disk)
    with process:
        declared.work(process.url, 1)
        was_hit = disk.succeed(call) > 0 or was_hit
        process.kill()
        process.start()
        declared.work(process.url, 2)
        process.kill()
        disk.cut_power(random.Random(after))
        process.start()
        declared.check(process.url)
        assert "Traceback" not in process.log_text(), process.log_text()
    return was_hit


def calls(library: Path, directory: Path, call: Call) -> Iterator[int]:
    """Fail each call that is tried; return their numbers."""
    after = _STEP // 2
    while fail_one_call(library, directory / f"{call.name}-{after}", call, after):
        yield after
        after += _STEP


@pytest.mark.parametrize("call", _CALLS, ids=lambda call: call.name.lower())
def test_one_call_fails(library: Path, tmp_path: Path, call: Call) -> None:
    tried = [*calls(library, tmp_path, call)]
    if _STEP == 1:
        print(f"{call.name}: {len(tried)} calls")  # noqa: T201
    assert tried or _STEP > 1

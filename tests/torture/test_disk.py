"""The disk that loses power: what it leaves of a directory, and that its record has all that a broker does to files."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.crash.broker_load import make_clients
from tests.crash.rounds import Round
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.torture.preloaded_disk import Call, PreloadedDisk, build

#: Statements that come first: the file `f`, which has "old", is open.
BEGIN = """
import os
at = lambda name: os.path.join(os.getcwd(), name)
f = os.open(at("f"), os.O_RDWR | os.O_APPEND)
d = os.open(os.getcwd(), os.O_RDONLY)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("library"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "root"
    made.mkdir()
    (made / "f").write_bytes(b"old")
    return made


@pytest.fixture
def disk(library: Path, root: Path) -> PreloadedDisk:
    return PreloadedDisk(library, root, root.parent)


def run(disk: PreloadedDisk, statements: str) -> subprocess.CompletedProcess[str]:
    """Run Python statements after BEGIN in the directory."""
    environment, directory = os.environ | dict(disk.environment), disk.environment["TORTURE_ROOT"]
    command = [sys.executable, "-S", "-c", BEGIN + statements]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def left(disk: PreloadedDisk, statements: str) -> list[dict[str, bytes | None]]:
    """Return what losses of power may leave after statements."""
    done = run(disk, statements)
    assert not done.returncode, done.stderr
    image = disk.replayed()
    found = [image.after_power_loss(random.Random(seed)) for seed in range(300)]
    return [each for at, each in enumerate(found) if each not in found[:at]]


class TestLossOfPower:
    def test_what_was_not_synced_may_be_there_in_part_or_not(self, disk: PreloadedDisk) -> None:
        contents = [each["f"] for each in left(disk, "os.write(f, b'new'); os.write(f, b'er')")]
        assert {b"old", b"oldnew", b"oldnewer", b"oldn", b"oldn\0"} <= set(contents)
        assert all(content is not None and content.startswith(b"old") for content in contents)

    @pytest.mark.parametrize("sync", ["os.fsync(f)", "os.fdatasync(f)", "os.sync()"])
    def test_what_was_synced_is_there(self, disk: PreloadedDisk, sync: str) -> None:
        assert left(disk, f"os.write(f, b'new'); {sync}") == [{"f": b"oldnew"}]

    def test_a_sync_that_failed_has_synced_nothing_nor_has_the_next(self, disk: PreloadedDisk) -> None:
        disk.fail(Call.SYNC, after=0)
        statements = """
os.write(f, b'new')
try:
    os.fsync(f)
except OSError:
    os.fsync(f)
os.write(f, b'er')
os.fsync(f)
"""
        contents = [each["f"] for each in left(disk, statements)]
        assert disk.succeed(Call.SYNC) == 1
        assert b"old\0\0\0er" in contents
        assert b"oldnewer" in contents

    @pytest.mark.parametrize("statement", ["os.rename(at('f'), at('g'))", "os.link(at('f'), at('g'))"])
    def test_names_that_were_not_synced_are_those_of_before_or_after(self, disk: PreloadedDisk, statement: str) -> None:
        names = [set(each) for each in left(disk, statement)]
        assert {"f"} in names
        assert {"f", "g"} in names
        assert ({"g"} in names) == statement.startswith("os.rename")

    def test_a_directory_that_was_synced_keeps_its_names(self, disk: PreloadedDisk) -> None:
        statements = (
            "os.mkdir(at('d')); os.rename(at('f'), at('d/f')); os.fsync(d); os.fsync(os.open(at('d'), os.O_RDONLY))"
        )
        assert left(disk, statements) == [{"d": None, "d/f": b"old"}]

    def test_a_new_file_needs_both_syncs(self, disk: PreloadedDisk) -> None:
        new = "g = os.open(at('g'), os.O_RDWR | os.O_CREAT); os.write(g, b'x'); "
        assert {"f": b"old"} in left(disk, f"{new}os.fsync(g)")
        assert left(disk, f"{new.replace('O_CREAT', 'O_TRUNC')}os.fsync(g); os.fsync(d)") == [{"f": b"old", "g": b"x"}]


class TestFailingCalls:
    @pytest.mark.parametrize(
        ("call", "statement"),
        [
            (Call.READ, "os.pread(f, 1, 0)"),
            (Call.WRITE, "os.write(f, b'x')"),
            (Call.SYNC, "os.fdatasync(f)"),
            (Call.OPEN, "open(at('g'), 'w')"),
            (Call.NAME, "os.unlink(at('f'))"),
        ],
    )
    def test_one_fails_once(self, disk: PreloadedDisk, call: Call, statement: str) -> None:
        # The two files of BEGIN are opened before.
        disk.fail(call, after=2 if call is Call.OPEN else 0, error=errno.EIO)
        assert "OSError: [Errno 5]" in run(disk, statement).stderr
        assert disk.succeed(call) == 1
        assert not run(disk, statement).returncode

    def test_a_full_disk_takes_what_there_is_room_for(self, disk: PreloadedDisk, root: Path) -> None:
        disk.limit_room(4)
        assert "No space left on device" in run(disk, "assert os.write(f, b'123456') == 4; os.write(f, b'5')").stderr
        assert disk.refused_writes == 1
        disk.limit_room(None)
        assert not run(disk, "os.write(f, b'5')").returncode
        assert (root / "f").read_bytes() == b"old12345"

    def test_the_clock(self, disk: PreloadedDisk) -> None:
        disk.step_clock(-3600)
        found = run(disk, "import time; print(time.time(), time.monotonic())").stdout.split()
        disk.step_clock(0)
        real = run(disk, "import time; print(time.time(), time.monotonic())").stdout.split()
        assert 3600 <= float(real[0]) - float(found[0]) < 3900
        assert 0 <= float(real[1]) - float(found[1]) < 300


def test_the_record_has_all_that_a_broker_does(library: Path, tmp_path: Path) -> None:
    data = tmp_path.resolve() / "data"
    data.mkdir(mode=0o750)
    disk = PreloadedDisk(library, data, tmp_path)
    settings = {"storage.segment_size": 65_536, "log_level": "warning"}
    with LeveretProcess(
        tmp_path.resolve(), settings=settings, environment=disk.environment, before_kill=disk.stop_between_calls
    ) as process:
        (client,) = make_clients(1)[:1]
        client.connect(process.url, Management(process.http_url))
        load = Round([client])
        load.wait(200)
        load.end(process.kill)
        # It recovers, and ends in order.
        process.restart()
        process.stop()
    real = {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}
    recorded = disk.replayed().now()
    assert recorded.keys() == real.keys()
    assert [path for path, octets in recorded.items() if octets != real[path]] == []


def is_longer(path: Path, size: int) -> bool:
    return path.stat().st_size > size


def test_what_a_process_has_done_that_is_stopped_between_calls_is_recorded(disk: PreloadedDisk, root: Path) -> None:
    environment = os.environ | dict(disk.environment)
    command = [sys.executable, "-S", "-c", BEGIN + "while True: os.write(f, b'new')"]
    for _ in range(20):
        size = (root / "f").stat().st_size
        with subprocess.Popen(command, cwd=root, env=environment) as process:
            wait_until(partial(is_longer, root / "f", size), "it has written")
            disk.stop_between_calls(process.pid)
            process.kill()
    assert disk.replayed().now() == {"f": (root / "f").read_bytes()}


def test_what_a_killed_process_has_not_recorded_is_left_out(disk: PreloadedDisk, root: Path) -> None:
    (root / "made").mkdir()
    for name in ("made/g", "new"):
        (root / name).write_bytes(b"unknown")
    statements = 'os.unlink("made/g"); os.rmdir("made"); os.rename("new", "f"); os.fsync(d)'
    assert left(disk, statements) == [{"f": b"old"}]

"""A broker inside another program, and the fixtures that programs get for their tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import aio_pika
import pika
import pytest

from leveret import Leveret, LeveretThread
from leveret.broker.app import StartError
from leveret.broker.config.config_errors import ConfigError
from tests.integration.program import ROOT
from tests.support.documentation import blocks
from tests.support.management import Management

_PROGRAMS = {each.split("\n")[0].removeprefix("# "): each for each in blocks("python") if each.startswith("# test_")}
_DEADLINE = 180


async def test_beside_its_client_in_one_loop() -> None:
    async with Leveret() as broker, await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("q")
        await channel.default_exchange.publish(aio_pika.Message(b"here"), "q")
        message = await queue.get()
        assert message.body == b"here"


def _declare(url: str) -> int:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        count: int = channel.queue_declare("q", durable=True).method.message_count
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"kept", pika.BasicProperties(delivery_mode=2))
        return count


def test_in_a_thread(tmp_path: Path) -> None:
    with LeveretThread(tmp_path) as broker:
        assert _declare(broker.url) == 0
        assert Management(broker.http_url).request("GET", "whoami")["name"] == "guest"
    with LeveretThread(tmp_path) as broker:
        assert _declare(broker.url) == 1, "a data directory that is given is kept"


def test_it_may_be_stopped_before_and_after() -> None:
    broker = LeveretThread()
    broker.stop()
    broker.start()
    broker.stop()
    broker.stop()


def test_a_program_that_just_ends_leaves_nothing_behind(tmp_path: Path) -> None:
    program = "from leveret import LeveretThread; broker = LeveretThread(); broker.start(); print(broker.url)"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=True,
    )
    assert ran.stdout.startswith("amqp://")
    assert ran.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_what_a_message_does_not_need_is_not_imported() -> None:
    """Test suites start brokers often, each in a process that may have nothing imported yet."""
    program = """
import pika, sys
from leveret import LeveretThread
with LeveretThread() as broker, pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.basic_publish("", "q", b"here")
    assert channel.basic_get("q", auto_ack=True)[2] == b"here"
print(*(name for name in ("aiohttp", "argparse", "difflib", "http.cookies", "regex", "yaml") if name in sys.modules))
"""
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_DEADLINE, check=False)
    assert (ran.stdout, ran.stderr) == ("\n", "")


def test_two_at_once_have_nothing_in_common() -> None:
    with LeveretThread() as one, LeveretThread() as other:
        assert _declare(one.url) == _declare(other.url) == 0


def test_options() -> None:
    options = {"default_user": "ann/b", "default_pass": "p@ss", "default_vhost": "a/b", "loopback_users": []}
    with LeveretThread(options=options) as broker:
        assert _declare(broker.url) == 0
    with pytest.raises(ConfigError, match="hartbeat"):
        LeveretThread(options={"hartbeat": 1})


def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StartError, match="cannot use the data directory"), LeveretThread(file / "data"):
        pass


@pytest.mark.parametrize("name", _PROGRAMS)
def test_fixtures_as_documented(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(_PROGRAMS[name])
    arguments = ("-q", "-p", "no:cacheprovider", name)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=False,
    )
    count = _PROGRAMS[name].count("def test_")
    assert (ran.returncode, f"{count} passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr

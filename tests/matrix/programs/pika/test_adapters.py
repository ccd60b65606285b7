"""pika's adapters for select, asyncio, Tornado, gevent and Twisted, each in a program of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.integration.waiting import wait_until
from tests.matrix.programs.pika.callbacks import MESSAGES, PREFETCH
from tests.matrix.programs.vhosts import Vhost

_ROOT = Path(__file__).parents[4]
_ADAPTERS = ["select", "asyncio", "tornado", "gevent"]


def _started(module: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"tests.matrix.programs.pika.{module}", *arguments]
    return subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)


def _result(program: subprocess.Popen[str]) -> dict[str, Any]:
    with program:
        output, _ = program.communicate(timeout=120)
    assert program.returncode == 0
    seen: dict[str, Any] = json.loads(output)
    return seen


@pytest.mark.parametrize("adapter", _ADAPTERS)
def test_publish_and_consume(vhost: Vhost, adapter: str) -> None:
    seen = _result(_started("callbacks", adapter, vhost.url, "work"))
    assert seen["confirmed"] == MESSAGES + 1
    assert seen["returned"] == [312]
    assert seen["received"] == list(range(MESSAGES))
    assert seen["most_unacked"] == PREFETCH
    assert seen["left"] == 0
    assert seen["closed"][0] == 200


def test_publish_and_consume_with_twisted(vhost: Vhost) -> None:
    seen = _result(_started("deferreds", vhost.url))
    assert seen == {"confirmed": MESSAGES, "returned": [312], "received": list(range(MESSAGES)), "left": 0}


@pytest.mark.parametrize("adapter", _ADAPTERS)
def test_heartbeats_and_close_by_the_broker(vhost: Vhost, adapter: str) -> None:
    """Both sides would have given up after two seconds without heartbeats."""
    queue = f"idle.{adapter}"
    program = _started("callbacks", adapter, f"{vhost.url}?heartbeat=1", "idle", queue)
    try:
        wait_until(lambda: bool((vhost.queue(queue) or {}).get("consumers")), "there is a consumer")
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(4)
        with pika.BlockingConnection(pika.URLParameters(vhost.url)) as connection:
            connection.channel().basic_publish("", queue, "still there")
        wait_until(lambda: vhost.close_consumers(queue), "the consumer is listed")
        seen = _result(program)
    finally:
        program.kill()
    assert seen["received"] == ["still there"]
    assert seen["closed"][0] == 320

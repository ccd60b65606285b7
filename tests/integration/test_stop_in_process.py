"""A broker that has been stopped, in a process that goes on: it leaves its files alone."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from leveret.broker.app import App
from leveret.broker.config.options import Settings
from tests.support.wire import Connection

_DELAY_MS = 400


def _publish(port: int) -> None:
    """Publish a message that is due soon, and one that expires soon."""
    with Connection(f"amqp://guest:guest@127.0.0.1:{port}", timeout=60) as connection:
        channel = connection.channel()
        channel.exchange_declare(
            "later", "x-delayed-message", durable=True, arguments=[("x-delayed-type", "S", "fanout")]
        )
        channel.queue_declare("q", durable=True, arguments=[("x-message-ttl", "I", _DELAY_MS)])
        channel.queue_bind("q", "later")
        channel.confirm_select()
        for exchange, headers in (("later", [("x-delay", "l", _DELAY_MS)]), ("", [])):
            channel.publish(exchange, "q", b"body", {"delivery_mode": 2, "headers": headers})
        assert all(channel.wait_for_confirms(2, 60))


def _contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "abandoned"])
async def test_timers_end_with_it(tmp_path: Path, caplog: pytest.LogCaptureFixture, is_clean: bool) -> None:
    caplog.set_level(logging.WARNING)
    app = App(Settings(data_dir=tmp_path, host=("127.0.0.1",), port=0, management_port=0, prometheus_port=0))
    await app.start()
    await asyncio.to_thread(_publish, app.addresses["amqp"][0][1])
    await (app.stop() if is_clean else app.abandon())
    assert not app.broker.timers.pending
    before = _contents(tmp_path)
    caplog.clear()
    # Another broker of this process may get the numbers of the handles that it has closed.
    handles = [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]
    await asyncio.sleep(2 * _DELAY_MS / 1000)
    for handle in handles:
        os.close(handle)
    assert caplog.messages == []
    assert _contents(tmp_path) == before

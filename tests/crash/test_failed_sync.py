"""A disk that fails to sync: the broker promises nothing more, ends with status 1, and recovers at the next start."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPError

from tests.support.leveret_process import LeveretProcess

PERSISTENT = pika.BasicProperties(delivery_mode=2)
#: Python reads it when it starts: syncs fail as soon as there is a certain file.
SITE = """
import errno, os
sync = os.fdatasync
def fdatasync(handle):
    if os.path.exists(os.environ["FAIL_SYNCS"]):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    sync(handle)
os.fdatasync = fdatasync
"""


def test_it_ends_and_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    trigger = tmp_path / "fail"
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("FAIL_SYNCS", str(trigger))
    with LeveretProcess(tmp_path) as broker:
        publishing = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = publishing.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"confirmed", PERSISTENT)
        trigger.touch()
        with pytest.raises(AMQPError):
            channel.basic_publish("", "q", b"not confirmed", PERSISTENT)
        assert ended_with(broker) == 1
        assert "cannot sync the data directory" in broker.log_text()
        trigger.unlink()
        broker.restart(crash=True)
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as consuming:
            channel = consuming.channel()
            found = [body for _, _, body in iter(lambda: channel.basic_get("q"), (None, None, None))]
        assert found[0] == b"confirmed"
        assert found[1:] in ([], [b"not confirmed"])


def ended_with(broker: LeveretProcess) -> int:
    deadline = time.monotonic() + 180
    while (end := os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
        assert time.monotonic() < deadline, "it continues"
        time.sleep(0.02)
    return end.si_status

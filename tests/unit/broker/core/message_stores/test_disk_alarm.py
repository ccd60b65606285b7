"""What the log says when nothing can be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.broker.config.options import Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.message_stores.data_directory import open_stores
from leveret.broker.core.scheduling.turn import Turn
from tests.support.manual_loop import ManualLoop
from tests.support.queues import ManualTimers


@pytest.mark.parametrize(
    ("lacks_descriptors", "said"), [(True, "no file descriptor (ulimit -n) is left"), (False, "until there is room")]
)
def test_the_alarm_says_why_it_is_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lacks_descriptors: bool, said: str
) -> None:
    loop = ManualLoop()
    broker = Broker(Turn(loop.call_soon), ManualTimers(loop))
    stores = open_stores(broker, Settings(data_dir=tmp_path), loop.call_soon)
    stores.engine.disk.note_write(True, lacks_descriptors)
    assert broker.alarms.any
    assert said in caplog.text
    stores.engine.disk.note_write(False)
    assert not broker.alarms.any
    assert "disk alarm cleared" in caplog.text
    assert stores.close()

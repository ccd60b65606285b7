"""What the log says when nothing can be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.broker.config.options import Settings
from leveret.broker.core.definitions_gate import DefinitionsGate
from leveret.broker.core.message_stores.data_directory import open_stores
from leveret.broker.core.resources.alarms import Alarms
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
    alarms, timers, turn = Alarms(), ManualTimers(loop), Turn(loop.call_soon)
    gate = DefinitionsGate(timers.real_call_later, alarms, turn.slice)
    stores = open_stores(Settings(data_dir=tmp_path), turn, timers, alarms, gate, loop.call_soon)
    stores.engine.disk.note_write(True, lacks_descriptors)
    assert alarms.any
    assert said in caplog.text
    stores.engine.disk.note_write(False)
    assert not alarms.any
    assert "disk alarm cleared" in caplog.text
    assert stores.close()

from __future__ import annotations

import io
import os
import signal
import sys

import pytest

from leveret.storage.analytics import command
from leveret.storage.analytics.errors import AnalyticsError

FROM_JAVA = """An error occurred while calling o41.start.
: org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: file:/data/FORMAT
\tat org.apache.hadoop.fs.RawLocalFileSystem.mkdirs(RawLocalFileSystem.java:873)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def test_what_java_says_becomes_a_line() -> None:
    reason = command.error_summary(Exception(FROM_JAVA))
    assert reason == "ParentNotDirectoryException: Parent path is not a directory: file:/data/FORMAT"


def test_sigterm_ends_a_job_in_order() -> None:
    before = signal.getsignal(signal.SIGTERM)
    given_up: list[bool] = []

    def work() -> None:
        with command._exit_on_sigterm():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                signal.pause()
            finally:
                given_up.append(True)

    with pytest.raises(SystemExit) as raised:
        work()
    assert (raised.value.code, given_up) == (143, [True])
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("name", ["/dev/null/report", "/proc/report"])
def test_where_nothing_can_be_written_is_said_first(name: str) -> None:
    with pytest.raises(AnalyticsError, match=f"cannot write to {name}: "):
        command._make_output(name)


def test_a_reader_may_stop_when_it_has_seen_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    read, written = os.pipe()
    os.close(read)
    with io.TextIOWrapper(os.fdopen(written, "wb"), encoding="ascii") as target:
        monkeypatch.setattr(sys, "stdout", target)
        command._print("ü" * 100_000)
        # What is left goes nowhere when the program ends.
        target.flush()

from __future__ import annotations

import json

import pytest

from tests.bench.archive import Archiving, Publishing, main, table


def test_an_archiver_that_was_killed_has_every_message_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--messages", "2005", "--kills", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["alone"]["per_second"] > 0
    assert found["beside"]["server_cpu_us"] > 0
    archiver = found["archiver"]
    assert (archiver["kills"], archiver["rows"], archiver["missing"], archiver["double"]) == (1, 2005, 0, 0)
    assert archiver["archive_bytes"] > 0


def test_the_table_tells_both_rates_and_what_is_wrong() -> None:
    lines = table(
        Publishing(2_000.0, 4.0), Publishing(1_000.0, 5.0), Archiving(20, 9.5, 1.25, 4_999, 1, 2, 5_000_000)
    ).splitlines()
    assert lines[1].split() == ["without", "an", "archiver", "2,000", "4.00"]
    assert lines[2].split() == ["with", "an", "archiver", "1,000", "5.00"]
    assert lines[3] == (
        "archiver: killed 20 times, 9.50 CPU µs/msg, complete 1.2 s after the last confirm;"
        " 4,999 rows in 5 MB, 1 missing, 2 double"
    )


@pytest.mark.parametrize("arguments", [["--messages", "0"], ["--kills", "many"]])
def test_bad_usage_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2

from __future__ import annotations

import json

import pytest

from tests.bench.scan import main, table
from tests.bench.scan_readers import QUERIES, Query


def test_every_query_has_figures_and_the_right_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--messages", "2005", "--only", "arrow", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["arrow"]
    assert tuple(found["arrow"]) == QUERIES
    assert all(query["seconds"] > 0 and query["cpu_seconds"] > 0 for query in found["arrow"].values())
    assert found["arrow"]["json"]["answer"] == 2004 * 2005 / 2


def test_the_table_has_a_line_for_each_query() -> None:
    took = Query(2.0, 4.0, 1)
    lines = table({"arrow": dict.fromkeys(QUERIES, took), "spark": dict.fromkeys(QUERIES, took)}, 8_000).splitlines()
    assert [line.split()[0] for line in lines] == ["query", *QUERIES]
    assert lines[1].split()[1:] == ["2.00", "4.00", "–"] * 2
    assert lines[2].split()[1:] == ["2.00", "4.00", "2,000"] * 2


@pytest.mark.parametrize("arguments", [["--messages", "0"], ["--only", "pandas"]])
def test_bad_usage_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2

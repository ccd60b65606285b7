"""docs/tables.md, and whether what it says about nulls is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.analytics.columns import ARCHIVED_TABLES, COLUMNS
from leveret.analytics.scan import scan
from leveret.analytics.table_reference import reference_page
from leveret.storage.event_format import EventKind
from tests.spark.directories import DirectoryBuilder
from tests.support.documentation import PAGES


def test_the_page_in_the_project_is_the_current_one() -> None:
    """`leveret-analytics table-reference > docs/tables.md` brings it up to date."""
    assert PAGES["docs/tables.md"] == reference_page()


def test_every_column_and_kind_has_its_row() -> None:
    *tables, kinds = [each.splitlines() for each in reference_page().split("\n## ")[1:]]
    found = {lines[0]: [line.split("`")[1] for line in lines if line.startswith("| `")] for lines in tables}
    for table, columns in COLUMNS.items():
        there = found.pop(table)
        assert [name for name in there if name not in ("broker", "value", "value_error")] == list(columns)
        assert ("broker" in there) == (table in ARCHIVED_TABLES)
    assert found == {}
    shown = {line.split("`")[1] for line in kinds if line.startswith("| `")}
    # Others are read with the event or tick that they belong to, or are of no messages.
    assert shown == {kind.name.lower() for kind in EventKind if kind < EventKind.TICK} - {"forgotten"}


@pytest.fixture
def builder(tmp_path: Path) -> DirectoryBuilder:
    """A data directory with as little in it as a row can have."""
    made = DirectoryBuilder(tmp_path)
    store = made.store(made.queue("q"))
    made.publish(store, [b"1", b"2"], delivery_mode=None)
    made.settle(store, 1)
    for kind in (EventKind.REFUSED, EventKind.UNROUTABLE):
        store.note(kind, 1, 1)
    made.store(made.queue("empty"))
    delayed = made.store(made.engine.create_queue(True, {"vhost": "/", "exchange": "late", "persists_transient": True}))
    made.publish(delayed, [b"3"], expires=made.clock.time + 3_600_000_000)
    for _ in range(3):
        made.tick()
    log = made.engine.open_audit_log(0, 0)
    log.add({"at": made.clock.time, "kind": "alarm.set", "user": "rmq-internal", "object": "memory", "details": {}})
    log.close()
    return made


@pytest.mark.parametrize("table", COLUMNS)
def test_what_is_never_null(builder: DirectoryBuilder, table: str) -> None:
    rows = scan(builder.path, table).read_all()
    assert rows.num_rows
    assert rows.column_names == list(COLUMNS[table])
    assert [name for name in rows.column_names if rows[name].null_count and not COLUMNS[table][name].nullable] == []

"""The table of fields, and what cannot be made from it: the columns of the web pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from leveret.broker.management import fields
from leveret.policies.dead_letter import REASONS

_PAGES: Final = Path(fields.__file__).parent / "ui" / "pages"
_COLUMN: Final = re.compile(r'sort: "([\w.]+)"|^\s*(?:count|size|age)\("(\w+)"', re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "table"),
    [
        ("queues.js", fields.QUEUE),
        ("channel_columns.js", fields.CHANNEL),
        ("connections.js", fields.CONNECTION),
        ("exchanges.js", fields.EXCHANGE),
    ],
)
def test_the_columns_of_a_page_are_fields(page: str, table: fields.Table) -> None:
    columns = ["".join(found) for found in _COLUMN.findall((_PAGES / page).read_text())]
    assert len(columns) > 2
    assert {column.partition(".")[0] for column in columns} <= {field.name for field in table}


def test_reasons_are_those_of_the_policies() -> None:
    assert fields.REASONS == REASONS


def test_every_form_of_a_column_is_known() -> None:
    tables = [
        value
        for value in vars(fields).values()
        if isinstance(value, tuple) and value and type(value[0]) is fields.Field
    ]
    assert {column.form for table in tables for column in fields.columns_of(table)} - {""} == set(fields.FORMS)

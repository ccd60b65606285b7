"""The table of fields, and the columns of the web pages that show them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from leveret.broker.management import fields
from leveret.broker.management.http.page_columns import LISTS
from leveret.policies.dead_letter import REASONS

_SCRIPT: Final = Path(fields.__file__).parent / "ui" / "parts" / "columns.js"
#: Sums that virtual hosts have of their queues.
_SUMS: Final = {"messages", "messages_ready", "messages_unacknowledged", "message_stats"}


@pytest.mark.parametrize("name", LISTS)
def test_the_columns_of_a_page_are_fields(name: str) -> None:
    table, columns = LISTS[name]
    known = {field.name for field in table} | (_SUMS if name == "vhosts" else set())
    assert {column.path.partition(".")[0].removesuffix("_details") for column in columns} <= known
    keys = [column.key or column.path for column in columns]
    assert len(set(keys)) == len(keys)


def test_the_pages_know_every_form_of_their_columns() -> None:
    forms = _SCRIPT.read_text().partition("const FORMS = {")[2].partition("\n};")[0]
    known = re.findall(r"^  (\w+)[:,]", forms, re.MULTILINE)
    assert {column.form for _, columns in LISTS.values() for column in columns} - {""} == set(known)


def test_reasons_are_those_of_the_policies() -> None:
    assert fields.REASONS == REASONS


def test_every_form_of_a_column_is_known() -> None:
    tables = [
        value
        for value in vars(fields).values()
        if isinstance(value, tuple) and value and type(value[0]) is fields.Field
    ]
    assert {column.form for table in tables for column in fields.columns_of(table)} - {""} == set(fields.FORMS)

"""Types and schemas of rules for bodies, as they are checked when a rule is set."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from dataclasses import asdict
from typing import Any

import pytest

from leveret.analytics.bodies.rule_check import problem_of
from leveret.broker.operations.body_rules import check_schemas
from leveret.storage.readers.body_rules import InvalidRule, read_rule
from tests.support.schema_registry import order_files

RECORD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
#: Each object has the next one twice.
HUGE = {
    "$ref": "#/$defs/0",
    "$defs": {
        **{str(n): {"properties": {name: {"$ref": f"#/$defs/{n + 1}"} for name in "ab"}} for n in range(30)},
        "30": {"type": "integer"},
    },
}


def descriptors() -> str:
    files = order_files()
    # What only registries have.
    del files.file[1].dependency[1:], files.file[1].message_type[1].field[2:]
    return b64encode(files.SerializeToString()).decode()


@pytest.mark.parametrize(
    ("form", "schema", "more", "reason"),
    [
        ("json", "id bigint, tags array<string>", {}, ""),
        ("json", "id bigin", {}, "cannot read the schema 'id bigin' at 'bigin'; write it as 'id bigint, tags"),
        ("json", "struct<a: struct<>>", {}, "has no fields in 'a'; name at least one"),
        ("json", " ", {}, "has no fields in the type; name at least one, as in 'id bigint'"),
        ("json", "l array<struct<id int, ID int>>", {}, "has 'id' and 'ID' in 'l', one field to SQL"),
        ("json", "a " + "array<" * 5000 + "int" + ">" * 5000, {}, "types are nested more than 64 deep"),
        ("json", {"type": "integr"}, {}, 'the schema has the type "integr"'),
        ("json", {"$ref": "line.json"}, {}, "refers to another schema at the schema (line.json); write that into"),
        ("json", HUGE, {}, "has more than 10000 parts with all that it refers to"),
        ("avro", RECORD, {}, ""),
        ("avro", {"type": "recrd"}, {}, "is not an Avro schema: "),
        ("avro", {**RECORD, "fields": [{"name": "x", "type": "Order"}]}, {}, "Order contains itself"),
        ("protobuf", descriptors(), {"message": "shop.Order"}, ""),
        ("protobuf", descriptors(), {"message": "Order"}, "has no message 'Order'; it has shop.Line, shop.Refund"),
        ("protobuf", b64encode(b"syntax = proto3").decode(), {"message": "x"}, "is not a descriptor set of Protobuf"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(form: str, schema: Any, more: dict[str, str], reason: str) -> None:
    found = problem_of(read_rule("orders", {"queue": "q", "format": form, "schema": schema, **more}, "/"))
    assert bool(found) == bool(reason)
    assert reason in found
    assert found.startswith("orders: ") or not found
    assert "\n" not in found
    assert len(found) < 500


@pytest.mark.slow
def test_a_type_that_is_larger_than_any_memory_is_refused_in_time() -> None:
    schema: dict[str, Any] = {**RECORD, "name": "r30"}
    for number in range(29, -1, -1):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"r{number + 1}"}]
        schema = {"type": "record", "name": f"r{number}", "fields": fields}
    rule = read_rule("orders", {"queue": "q", "format": "avro", "schema": schema}, "/")
    with pytest.raises(InvalidRule, match="rules for bodies cannot be checked: the type of orders is too large"):
        check_schemas([rule])


def test_it_needs_no_library_for_json_and_passes_what_it_cannot_check() -> None:
    rules = [
        read_rule("a", {"queue": "q", "format": "json", "schema": "id bigin"}, "/"),
        read_rule("b", {"queue": "q", "format": "json", "schema": {"type": "integr"}}, "/"),
        read_rule("c", {"queue": "q", "format": "avro", "schema": {"type": "recrd"}}, "/"),
    ]
    program = """
import sys
sys.modules.update(dict.fromkeys(("pyarrow", "numpy", "fastavro", "google"), None))
from leveret.analytics.bodies.rule_check import main
sys.exit(main())
"""
    given = json.dumps([asdict(each) for each in rules])
    done = subprocess.run([sys.executable, "-c", program], input=given, capture_output=True, text=True, check=True)
    assert [each.partition(":")[0] for each in json.loads(done.stdout)] == ["a", "b", ""]

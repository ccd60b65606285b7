from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from leveret.storage.disk.files import DiskFiles
from leveret.storage.readers.body_rules import (
    NAME,
    BodyRule,
    InvalidRule,
    is_rule_name,
    read_rule,
    read_rules,
    write_rules,
)

JSON = {"queue": "orders.*", "format": "json", "schema": "id bigint"}
AVRO = {"queue": "orders", "format": "avro", "schema": {"type": "record", "name": "o", "fields": []}}
PROTOBUF = {"queue": "orders", "format": "protobuf", "schema": base64.b64encode(b"x").decode(), "message": "shop.Order"}


def read_contents(path: str) -> bytes:
    return Path(path).read_bytes()


def test_rules_of_parameters() -> None:
    assert read_rule("orders", JSON, "/") == BodyRule("orders", "orders.*", "/", "json", "id bigint")
    assert read_rule("o_2", {**JSON, "queue": ["a", "b*"], "format": "JSON"}, "/").queue == '["a", "b*"]'
    assert read_rule("orders", AVRO, "/").schema == '{"type": "record", "name": "o", "fields": []}'
    assert read_rule("orders", PROTOBUF, "/").message == "shop.Order"
    registry = {"queue": "q", "format": "avro", "registry": "https://registry:8081", "subject": "orders-value"}
    assert read_rule("orders", registry, "/").subject == "orders-value"


def test_rules_of_files(tmp_path: Path) -> None:
    (tmp_path / "o.desc").write_bytes(b"\0\1")
    entry = {"queue": "q", "format": "protobuf", "schema_file": str(tmp_path / "o.desc"), "message": "o", "vhost": "/"}
    rule = read_rule("orders", entry, read_file=read_contents)
    assert (rule.vhost, base64.b64decode(rule.schema)) == ("/", b"\0\1")
    directory = {"queue": "q", "format": "avro", "registry": "/var/schemas", "subject": "orders"}
    assert read_rule("orders", directory, read_file=read_contents).registry == "/var/schemas"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("Orders", JSON, "'Orders' is not the name of a rule"),
        ("json", JSON, "'json' is not the name of a rule"),
        ("orders", [], "orders: a rule is an object with the keys queue, format"),
        ("orders", {**JSON, "pattern": "x"}, "orders: unknown key 'pattern'; the keys are queue, format, schema"),
        ("orders", {"format": "json", "schema": "id int"}, "orders: 'queue' is missing"),
        ("orders", {**JSON, "queue": []}, "orders: 'queue' is a name, a pattern, or a list of these, not []"),
        ("orders", {**JSON, "queue": 1}, "orders: 'queue' is a name, a pattern, or a list of these, not 1"),
        ("orders", {**JSON, "queue": "q" * 70_000}, "orders: 'queue' has more than 65536 characters"),
        ("orders", {**JSON, "format": "xml"}, "orders: 'format' is one of json, avro, protobuf, not 'xml'"),
        ("orders", {**JSON, "format": 1}, "orders: 'format' is a text, not 1"),
        (
            "orders",
            {"queue": "q", "format": "json"},
            "orders: the format json needs 'schema', columns such as 'id bigint",
        ),
        ("orders", {**JSON, "schema": "{x"}, "orders: 'schema' is not a JSON schema"),
        ("orders", {**JSON, "schema": 1}, "orders: 'schema' is a text or an object, not 1"),
        ("orders", {**JSON, "schema": "x" * 2_000_000}, "orders: 'schema' has more than 1048576 characters"),
        ("orders", {**JSON, "message": "m"}, "orders: 'message' is for the format protobuf"),
        (
            "orders",
            {**AVRO, "registry": "http://me:pw@h"},
            "orders: 'registry' has a login; write that for its host in the file",
        ),
        ("orders", {**AVRO, "registry": "http://me@h"}, "orders: 'registry' has a login"),
        ("orders", {**AVRO, "registry": "http://h?key=x"}, "orders: 'registry' has a login"),
        (
            "orders",
            {"queue": "q", "format": "avro"},
            "orders: the format avro needs 'schema', or 'registry' and 'subject'",
        ),
        ("orders", {**AVRO, "schema": "/etc/passwd"}, "orders: 'schema' is not an Avro schema"),
        ("orders", {**AVRO, "subject": "s"}, "orders: 'subject' needs 'registry'"),
        ("orders", {"queue": "q", "format": "avro", "registry": "http://h"}, "orders: a registry needs 'subject'"),
        ("orders", {**AVRO, "registry": "/var/schemas"}, "orders: 'registry' is the URL of a schema registry"),
        ("orders", {**AVRO, "registry": "http://:80"}, "orders: 'registry' has no host"),
        ("orders", {**AVRO, "registry": "http://h:port"}, "orders: 'registry' has no host"),
        ("orders", {**AVRO, "registry": "http://h", "subject": "../x"}, "orders: 'subject' has 1 to 255 characters"),
        ("orders", {**PROTOBUF, "message": ""}, "orders: the format protobuf needs 'schema', in base64"),
        ("orders", {**PROTOBUF, "schema": "/etc/passwd."}, "orders: 'schema' is not base64"),
        ("orders", {**JSON, "schema_file": "/etc/passwd"}, "orders: unknown key 'schema_file'"),
        ("orders", {**JSON, "vhost": "other"}, "orders: unknown key 'vhost'"),
    ],
)
def test_what_is_wrong_is_told(name: str, value: Any, reason: str) -> None:
    with pytest.raises(InvalidRule) as refused:
        read_rule(name, value, "/")
    assert reason in str(refused.value)


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InvalidRule, match="orders: schema_file /nowhere cannot be read: No such file or directory"):
        read_rule("orders", {"queue": "q", "format": "json", "schema_file": "/nowhere"}, read_file=read_contents)


def test_all_reasons_are_told_at_once() -> None:
    with pytest.raises(InvalidRule) as refused:
        read_rule("orders", {"format": "xml", "color": "red"}, "/")
    assert len(str(refused.value).splitlines()) == 3


def test_names_are_ends_of_tables_names() -> None:
    assert [name for name in ("a", "a_1", "z" * 63, "1a", "", "a-b", "z" * 64, "avro") if is_rule_name(name)] == [
        "a",
        "a_1",
        "z" * 63,
    ]


def test_the_file_is_written_when_it_changes(tmp_path: Path) -> None:
    files, path = DiskFiles(), str(tmp_path)
    assert read_rules(files, path) is None
    write_rules(files, path, [])
    assert os.listdir(path) == []
    rules = [read_rule("orders", JSON, "/"), read_rule("mail", AVRO, "other")]
    write_rules(files, path, rules)
    assert read_rules(files, path) == rules
    before = os.stat(tmp_path / NAME).st_ino
    write_rules(files, path, rules)
    assert os.stat(tmp_path / NAME).st_ino == before
    write_rules(files, path, [])
    assert read_rules(files, path) == []
    assert os.listdir(path) == [NAME]


@pytest.mark.parametrize("contents", [b"", b"{}", b'{"crc": 1, "format": 1, "rules": []}', b"[" * 100_000])
def test_a_damaged_file_counts_as_none(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / NAME).write_bytes(contents)
    assert read_rules(DiskFiles(), str(tmp_path)) is None

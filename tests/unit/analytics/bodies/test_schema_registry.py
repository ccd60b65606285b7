from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.analytics.bodies import schema_registry
from leveret.analytics.bodies.avro_bodies import AvroBodies
from leveret.analytics.bodies.schema_registry import RegistryError, SchemaRegistry
from tests.support.schema_registry import RegistryServer, framed
from tests.unit.analytics.bodies.payloads import read
from tests.unit.analytics.bodies.test_avro_bodies import encoded

FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "old", "type": "string"}],
}
SECOND = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_bodies_of_all_versions_are_read_as_one_type(server: RegistryServer) -> None:
    first, second = server.register("orders", FIRST), server.register("orders", SECOND)
    bodies = AvroBodies(json.dumps(SECOND), registry=server.url)
    written = [
        framed(first, encoded(FIRST, {"id": 1, "old": "x"})),
        framed(second, encoded(SECOND, {"id": 2, "note": "y"})),
        encoded(SECOND, {"id": 3, "note": "z"}),
        framed(second, b""),
        framed(second, encoded(SECOND, {"id": 2, "note": None}) + b"more"),
        framed(99, b""),
        framed(98, b""),
    ]
    values, reasons = zip(*read(bodies, *written * 100), strict=True)
    assert list(values[:7]) == [{"id": 1, "note": None}, {"id": 2, "note": "y"}, *[None] * 5]
    assert [(reason or "").removeprefix("the body ") for reason in reasons[2:7]] == [
        "does not begin with the five bytes of a schema registry: 0, and its schema",
        f"is not Avro of schema {second}, read as that of the rule: it ends too early",
        f"is not Avro of schema {second}, read as that of the rule: 4 bytes are left at its end",
        f"schema 99 is not in the registry {server.url}; register it there",
        f"schema 98 is not in the registry {server.url}; register it there",
    ]
    # Nothing is asked for twice, also by another reader in the process.
    read(AvroBodies(json.dumps(SECOND), registry=server.url), *written)
    assert sorted(server.asked) == [f"/schemas/ids/{number}" for number in (1, 2, 98, 99)]


def test_a_schema_with_references(server: RegistryServer) -> None:
    inner = {"type": "record", "name": "Line", "namespace": "shop", "fields": [{"name": "n", "type": "int"}]}
    server.register("line", inner)
    outer = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "line", "type": "shop.Line"}]}
    references = [{"name": "shop.Line", "subject": "line", "version": 1}]
    number = server.register("order", outer, references=references)
    schema = SchemaRegistry(server.url).latest("order", "avro")
    bodies = AvroBodies(str(schema.content), [text for _, text in schema.needs], server.url)
    assert read(bodies, framed(number, b"\x08")) == [({"line": {"n": 4}}, None)]


def test_references_in_a_circle_end(server: RegistryServer) -> None:
    references = [{"name": "a", "subject": "a", "version": 1}]
    server.register("a", FIRST, references=references)
    assert SchemaRegistry(server.url).latest("a", "avro").needs == [("a", json.dumps(FIRST))]


def test_what_is_missing_is_asked_for_again_later(server: RegistryServer) -> None:
    clock = Clock()
    registry = SchemaRegistry(server.url, clock)
    for _ in range(3):
        with pytest.raises(RegistryError) as refused:
            registry.schema(1, "avro")
        assert not refused.value.is_away
    assert server.asked == ["/schemas/ids/1"]
    number = server.register("orders", FIRST)
    clock.now += 31
    assert registry.schema(number, "avro").content == json.dumps(FIRST)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"status": 500}, "has answered with 500; look at its log"),
        ({"body": b"<html>"}, "does not answer as a schema registry when asked for schema 1; check its URL"),
        ({"body": b"{}"}, "does not answer as a schema registry"),
        ({"body": b"[" * 1000}, "does not answer as a schema registry"),
        ({"body": b'{"schema": "1", "references": [1]}'}, "does not answer as a schema registry"),
        ({"body": b" " * (5 << 20)}, "cannot be reached: its answer has more than 4194304 bytes"),
        ({"login": "Basic other"}, "refuses access (401); write user and password for its host in"),
        ({"trickles": True}, "cannot be reached: no answer in 1 s; start it, or correct its URL"),
    ],
)
def test_a_registry_that_does_not_do_its_work(
    server: RegistryServer, fault: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault.get("trickles"):
        monkeypatch.setattr(schema_registry, "_ANSWER", 1.0)
    server.register("orders", FIRST)
    for name, value in fault.items():
        setattr(server, name, value)
    registry = SchemaRegistry(server.url, Clock())
    for number in (1, 1, 2, 3):
        with pytest.raises(RegistryError) as refused:
            registry.schema(number, "avro")
        assert (refused.value.is_away, said in str(refused.value)) == (True, True)
    # It is not asked for each message, and not for each schema.
    assert len(server.asked) == 1


def test_a_registry_that_is_away_is_found_when_it_is_back(server: RegistryServer) -> None:
    number = server.register("orders", FIRST)
    clock = Clock()
    server.status = 503
    registry = SchemaRegistry(server.url, clock)
    with pytest.raises(RegistryError):
        registry.schema(number, "avro")
    server.status = None
    with pytest.raises(RegistryError):
        registry.schema(number, "avro")
    clock.now += 31
    assert registry.schema(number, "avro").content == json.dumps(FIRST)


def test_nobody_listens() -> None:
    with RegistryServer() as server:
        url = server.url
    with pytest.raises(RegistryError, match="cannot be reached: Connection refused; start it, or correct its URL"):
        SchemaRegistry(url).schema(1, "avro")


def test_user_and_password_are_those_of_netrc(
    server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(file))
    server.login = f"Basic {b64encode(b'me:s/cret').decode()}"
    number = server.register("orders", FIRST)
    url = server.url
    file.write_text("machine other login me password other\ndefault login me password s/cret\n")
    with pytest.raises(RegistryError, match=f"refuses access .401.; write user and password for its host in {file}"):
        SchemaRegistry(url).schema(number, "avro")
    file.write_text("machine 127.0.0.1 login me password s/cret\n")
    assert SchemaRegistry(url).schema(number, "avro").content == json.dumps(FIRST)
    server.login = "Basic other"
    with pytest.raises(RegistryError) as refused:
        SchemaRegistry(url).schema(number, "avro")
    assert "cret" not in str(refused.value)
    file.write_text("machine 127.0.0.1 s/cret\n")
    with pytest.raises(RegistryError, match=f"{file} is not a netrc file: line . is wrong; start it"):
        SchemaRegistry(url).schema(number, "avro")


def test_schemas_of_other_kinds_are_refused(server: RegistryServer) -> None:
    number = server.register("orders", {}, schemaType="PROTOBUF")
    with pytest.raises(RegistryError, match=f"schema {number} of the registry {server.url} is PROTOBUF, not Avro"):
        SchemaRegistry(server.url).schema(number, "avro")


def test_a_schema_that_is_none_is_told(server: RegistryServer) -> None:
    number = server.register("orders", {"type": "recrd"})
    ((_, reason),) = read(AvroBodies(json.dumps(FIRST), registry=server.url), framed(number, b""))
    assert reason is not None
    assert reason.startswith(f"schema {number} of {server.url} is not an Avro schema")


def test_a_directory(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(FIRST))
    (tmp_path / "orders-value.avsc").write_text(json.dumps(SECOND))
    (tmp_path / "8.avsc").write_bytes(b"\xff")
    registry = SchemaRegistry(str(tmp_path))
    assert registry.schema(7, "avro").content == json.dumps(FIRST)
    assert registry.latest("orders-value", "avro").content == json.dumps(SECOND)
    with pytest.raises(RegistryError, match=f"schema 9 is not in the directory {tmp_path}: there is no 9.avsc"):
        registry.schema(9, "avro")
    with pytest.raises(RegistryError, match="it is not UTF-8"):
        registry.schema(8, "avro")

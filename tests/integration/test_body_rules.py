"""Rules for bodies of a running broker: set as parameters and in the configuration, used by SQL and Arrow."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

import leveret
from tests.integration.confirmed import publish_confirmed
from tests.integration.test_archiving import archivers
from tests.integration.test_iceberg_catalog import catalog_of
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management
from tests.support.schema_registry import RegistryServer, framed, register_json, register_protobuf
from tests.unit.analytics.bodies.test_avro_bodies import encoded

ORDER = {"queue": "orders.*", "format": "json", "schema": {"properties": {"id": {"type": "integer"}}}}
MAIL = {"type": "record", "name": "Mail", "fields": [{"name": "to", "type": "string"}]}


def publish(broker: LeveretProcess, queue: str, *bodies: bytes) -> None:
    publish_confirmed(broker.url, queue, bodies, [("x-queue-mode", "S", "lazy")])


def refusal(api: Management, name: str, value: Any) -> tuple[int, str]:
    return api.refusal("PUT", "parameters", "bodies", "/", name, body={"value": value})


def test_rules_are_set_used_and_cleared(tmp_path: Path) -> None:
    config = tmp_path / "leveret.yaml"
    config.write_text('bodies: {static: {queue: "s*", format: json, schema: "n int"}}\n')
    with LeveretProcess(tmp_path, config=config) as broker, RegistryServer() as registry:
        api, number = Management(broker.http_url), registry.register("mails-value", MAIL)
        publish(broker, "orders.eu", b'{"id": 7}', b"{")
        publish(broker, "mails", framed(number, encoded(MAIL, {"to": "you"})), framed(99, b""))
        publish(broker, "s1", b'{"n": 1}')

        def ask(columns: str, table: str) -> Any:
            statement = f"select {columns} from bodies_{table} order by seq"
            return api.request("POST", "sql", body={"statement": statement})["rows"]

        for name, register in (("json_orders", register_json), ("protobuf_orders", register_protobuf)):
            rule, bodies = register(registry)
            publish(broker, rule["queue"], *bodies)
            api.request("PUT", "parameters", "bodies", "/", name, body={"value": rule})
        Leveretctl(broker.http_url).output("set_parameter", "bodies", "orders", json.dumps(ORDER))
        rule = {"queue": "mails", "format": "avro", "registry": registry.url, "subject": "mails-value"}
        api.request("PUT", "parameters", "bodies", "/", "mails", body={"value": rule})
        wait_until(lambda: ask("value.n", "static") == [[1]], "a tick")
        assert ask("value.id, value_error is null, body", "orders") == [[7, True, '{"id": 7}'], [None, False, "{"]]
        for name in ("json_orders", "protobuf_orders"):
            assert ask("value.id, value.line.n, value.other", name)[0] == [1, 4, 7]
        registry.asked.clear()
        unknown = f"schema 99 is not in the registry {registry.url}; register it there"
        assert ask("value.to, value_error", "mails") == [["you", None], [None, unknown]]
        found = leveret.scan(broker.data_dir, columns=["value", "value_error"], bodies="mails").read_all()
        assert found.to_pylist() == [
            {"value": {"to": "you"}, "value_error": None},
            {"value": None, "value_error": unknown},
        ]
        # A schema of the registry is fetched once by each process, and for the type.
        assert sorted(registry.asked) == sorted(
            ["/schemas/ids/1", "/schemas/ids/99", "/subjects/mails-value/versions/latest"] * 2
        )
        registry.close()
        said = api.refusal("POST", "sql", body={"statement": "select * from bodies_mails order by seq"})[1]
        assert "rule 'mails' for bodies: the registry http://127.0.0.1" in said
        assert ask("value.n", "static") == [[1]]
        api.request("DELETE", "parameters", "bodies", "/", "orders")
        wait_until(lambda: '"name": "orders"' not in (broker.data_dir / "bodies.json").read_text(), "the rule is gone")
        broker.kill()
        broker.start()
        assert "mails" in (broker.data_dir / "bodies.json").read_text()


def test_wrong_rules_are_refused(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as broker:
        api = Management(broker.http_url)
        for name, value, reason in (
            ("Orders", ORDER, "'Orders' is not the name of a rule"),
            ("orders", {**ORDER, "format": "xml"}, "orders: 'format' is one of json, avro, protobuf, not 'xml'"),
            ("orders", {**ORDER, "schema_file": "/etc/passwd"}, "orders: unknown key 'schema_file'"),
            ("orders", {**ORDER, "schema": json.loads('{"a":' * 200 + "1" + "}" * 200)}, "orders: nested too deep"),
            (
                "orders",
                {**ORDER, "schema": "id bigin"},
                "orders: cannot read the schema 'id bigin' at 'bigin'; write it",
            ),
            ("orders", {**ORDER, "format": "avro"}, "orders: the schema of bodies is not an Avro schema: "),
        ):
            status, said = refusal(api, name, value)
            assert (status, reason in said) == (400, True), said
        api.request("PUT", "vhosts", "other")
        api.request("PUT", "parameters", "bodies", "other", "orders", body={"value": ORDER})
        assert "orders: virtual host 'other' has a rule of this name" in refusal(api, "orders", ORDER)[1]
        definitions = api.request("GET", "definitions")
        entry = {"vhost": "other", "component": "bodies", "name": "orders", "value": ORDER}
        assert entry in definitions["parameters"]
        api.request("DELETE", "vhosts", "other")
        wait_until(lambda: "orders" not in (broker.data_dir / "bodies.json").read_text(), "the rule is gone")
        api.request("POST", "definitions", body=definitions)
        assert api.request("GET", "parameters", "bodies") == [entry]
        entry["value"] = {}
        assert "orders: 'queue' is missing" in api.refusal("POST", "definitions", body={"parameters": [entry]})[1]
        entry["value"] = {**ORDER, "schema": "id bigin"}
        document = {"vhosts": [{"name": "third"}], "parameters": [entry]}
        assert "orders: cannot read the schema 'id bigin'" in api.refusal("POST", "definitions", body=document)[1]
        # Nothing of it was imported.
        assert "third" not in {each["name"] for each in api.request("GET", "vhosts")}


def test_a_wrong_rule_of_the_configuration_is_named_at_the_start(tmp_path: Path) -> None:
    config = tmp_path / "leveret.yaml"
    config.write_text("bodies: {orders: {queue: q, format: json, schema_file: /nowhere}}\n")
    with pytest.raises(RuntimeError, match="bodies: orders: schema_file /nowhere cannot be read: No such file"):
        LeveretProcess(tmp_path, config=config)
    config.write_text("bodies: {orders: {queue: q, format: json, schema: id bigin}}\n")
    with pytest.raises(RuntimeError, match="bodies: orders: cannot read the schema 'id bigin' at 'bigin'; write it as"):
        LeveretProcess(tmp_path, config=config)


def test_the_archive_has_a_table_of_a_rule(tmp_path: Path) -> None:
    """In files, and in Iceberg by the broker's catalog; the archiver is killed and the rule gets a further field."""
    settings: dict[str, object] = {
        "archive.url": str(tmp_path / "archive"),
        "archive.interval": "1s",
        "archive.iceberg": "archive",
    }
    with LeveretProcess(tmp_path, settings=settings) as broker:
        api = Management(broker.http_url)
        api.request("PUT", "parameters", "bodies", "/", "orders", body={"value": ORDER})
        publish(broker, "orders.eu", *(b'{"id": %d, "note": "x"}' % number for number in range(50)), b"{")

        def values() -> list[Any]:
            try:
                table = catalog_of(broker).load_table("leveret.bodies_orders")
            except (NoSuchTableError, NoSuchNamespaceError):
                return []
            found = table.scan(selected_fields=("value",)).to_arrow()["value"].to_pylist()
            return sorted(found, key=lambda value: -1 if value is None else value["id"])

        wait_until(lambda: values() == [None, *({"id": number} for number in range(50))], "the table has all rows")
        for pid in archivers(broker):
            os.kill(pid, signal.SIGKILL)
        wider = {**ORDER, "schema": "id bigint, note string"}
        api.request("PUT", "parameters", "bodies", "/", "orders", body={"value": wider})
        publish(broker, "orders.us", *(b'{"id": %d, "note": "x"}' % number for number in range(50, 60)))
        wanted = [None, *({"id": number, "note": None if number < 50 else "x"} for number in range(60))]
        wait_until(lambda: values() == wanted, "the table has a further column and all rows")
        api.request("PUT", "parameters", "bodies", "/", "orders", body={"value": {**ORDER, "schema": "id string"}})
        publish(broker, "orders.us", b'{"id": "x"}')
        said = (
            "rule 'orders' for bodies: its type does not fit bodies_orders any more: value.id was bigint, and is string"
        )
        wait_until(lambda: said in broker.log_text(), "the log says what is wrong")
        wait_until(
            lambda: catalog_of(broker).load_table("leveret.messages").scan().count() == 62, "the archive goes on"
        )
        assert values() == wanted
        statement = "select count(*), count(value.id) from archived_bodies_orders"
        assert api.request("POST", "sql", body={"statement": statement})["rows"] == [[62, 61]]
        assert broker.stop() == 0

"""The catalog of the archive's tables on the management port, as pyiceberg sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ServiceUnavailableError, UnauthorizedError

from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Connection

NAME = "leveret.messages"


@contextmanager
def archiving(tmp_path: Path, catalog: str = "archive") -> Iterator[LeveretProcess]:
    """A broker with an archive that has tables, and messages in two queues."""
    settings: dict[str, object] = {
        "archive.url": str(tmp_path / "archive"),
        "archive.interval": "1s",
        "archive.iceberg": catalog,
    }
    with LeveretProcess(tmp_path, settings=settings) as broker:
        publish(broker, "orders", range(10))
        publish(broker, "mails", range(10, 15))
        yield broker
        assert broker.stop() == 0


def publish(broker: LeveretProcess, queue: str, numbers: range) -> None:
    connection = Connection(broker.url)
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_select()
    for number in numbers:
        channel.publish("", queue, b"%d" % number, {"delivery_mode": 2})
    assert channel.wait_for_confirms(len(numbers)) == [True] * len(numbers)
    connection.close()


def catalog_of(broker: LeveretProcess, user: str = "guest") -> RestCatalog:
    login = {"username": user, "password": "guest" if user == "guest" else "secret"}
    properties: dict[str, Any] = {"auth": {"type": "basic", "basic": login}}
    return RestCatalog("broker", uri=f"{Management(broker.http_url).base}/iceberg", **properties)


def bodies(broker: LeveretProcess, user: str = "guest") -> Counter[int]:
    try:
        table = catalog_of(broker, user).load_table(NAME)
    except (NoSuchTableError, NoSuchNamespaceError):
        return Counter()
    return Counter(int(each) for each in table.scan(selected_fields=("body",)).to_arrow()["body"].to_pylist())


def test_pyiceberg_attaches_the_catalog(tmp_path: Path) -> None:
    with archiving(tmp_path) as broker:
        wait_until(lambda: bodies(broker) == Counter(range(15)), "the table has all messages")
        catalog = catalog_of(broker)
        assert catalog.list_namespaces() == [("leveret",)]
        assert catalog.list_namespaces("leveret") == []
        assert catalog.namespace_exists("leveret")
        assert not catalog.namespace_exists("other")
        assert ("leveret", "messages") in catalog.list_tables("leveret")
        assert catalog.table_exists(NAME)
        assert not catalog.table_exists("leveret.other")
        table = catalog.load_table(NAME)
        assert table.scan(row_filter="queue = 'mails'").to_arrow()["body"].to_pylist() == [
            b"%d" % number for number in range(10, 15)
        ]
        publish(broker, "orders", range(15, 20))
        wait_until(lambda: bodies(broker) == Counter(range(20)), "what has come since is there")
        # Nothing can be changed.
        with pytest.raises(NotImplementedError):
            catalog.drop_table(NAME)
        change = catalog.load_table(NAME).transaction().set_properties({"a": "b"})
        with pytest.raises(NotImplementedError):
            change.commit_transaction()
        assert bodies(broker) == Counter(range(20))


def test_a_table_is_there_for_who_may_read_all_its_queues(tmp_path: Path) -> None:
    with archiving(tmp_path) as broker:
        wait_until(lambda: bodies(broker) == Counter(range(15)), "the table has all messages")
        api = Management(broker.http_url)
        api.request("PUT", "users", "reader", body={"password": "secret", "tags": "management"})
        catalog, rights = catalog_of(broker, "reader"), {"configure": "", "write": ".*", "read": ""}
        for read in (None, "", "^orders$", "^mails$"):
            if read is not None:
                api.request("PUT", "permissions", "/", "reader", body={**rights, "read": read})
            assert catalog.list_namespaces() == []
            with pytest.raises(NoSuchNamespaceError):
                catalog.list_tables("leveret")
            with pytest.raises((NoSuchTableError, NoSuchNamespaceError)):
                catalog.load_table(NAME)
        rights["read"] = "^(orders|mails)$"
        api.request("PUT", "permissions", "/", "reader", body=rights)
        assert bodies(broker, "reader") == Counter(range(15))
        # The same name in another virtual host.
        api.request("PUT", "vhosts", "v")
        rights["read"] = ".*"
        api.request("PUT", "permissions", "v", "reader", body=rights)
        api.request("DELETE", "permissions", "/", "reader")
        assert bodies(broker, "reader") == Counter()
        # Who has no tag has no access at all.
        api.request("PUT", "users", "nobody", body={"password": "secret", "tags": ""})
        for user in ("nobody", "unknown"):
            with pytest.raises(UnauthorizedError, match="NotAuthorizedException"):
                catalog_of(broker, user)


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with archiving(tmp_path, "nothing") as broker:
        text = "the broker has no catalog of its own: set archive.url, and archive.iceberg to archive"
        with pytest.raises(NoSuchTableError, match=text):
            catalog_of(broker).load_table(NAME)
    (tmp_path / "second").mkdir()
    with archiving(tmp_path / "second") as broker:
        wait_until(lambda: bodies(broker) == Counter(range(15)), "the table has all messages")
        for path in (tmp_path / "second" / "archive" / "manifests").glob("*/*.json"):
            path.write_bytes(b"{}")

        def said() -> str:
            try:
                catalog_of(broker).list_namespaces()
            except ServiceUnavailableError as error:
                return str(error)
            return ""

        text = "is damaged; restore it from a copy of the archive"
        wait_until(lambda: text in said(), "the catalog says so, when what it read before is too old")

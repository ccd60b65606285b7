"""The catalog of the archive's tables on the management port, as pyiceberg sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ServiceUnavailableError, UnauthorizedError

from tests.integration.confirmed import publish_numbers
from tests.integration.waiting import wait_until
from tests.support.documentation import ROOT
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.torture.iceberg_tables import make_environment

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
    publish_numbers(broker.url, queue, numbers)


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
        # The audit log is for monitors, whatever queues they may read.
        wait_until(lambda: catalog_of(broker).table_exists("leveret.audit"), "the audit log is archived")
        assert not catalog.table_exists("leveret.audit")
        api.request("PUT", "users", "reader", body={"password": "secret", "tags": "monitoring"})
        audited = catalog.load_table("leveret.audit").scan(selected_fields=("kind", "object")).to_arrow().to_pylist()
        assert {"kind": "queue.created", "object": "orders"} in audited
        api.request("PUT", "users", "reader", body={"password": "secret", "tags": "management"})
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


_IN_SPARK = """
import json, sys
from pyspark.sql import SparkSession
jar, uri, query = sys.argv[1:]
lake = "spark.sql.catalog.lake"
spark = (
    SparkSession.builder.master("local[1]").config("spark.jars", jar).config("spark.ui.enabled", "false")
    .config(lake, "org.apache.iceberg.spark.SparkCatalog").config(f"{lake}.type", "rest").config(f"{lake}.uri", uri)
    .config(f"{lake}.rest.auth.type", "basic").config(f"{lake}.rest.auth.basic.username", "guest")
    .config(f"{lake}.rest.auth.basic.password", "guest")
    .config(f"{lake}.io-impl", "org.apache.iceberg.hadoop.HadoopFileIO").getOrCreate()
)
print(json.dumps([list(row) for row in spark.sql(query).collect()]))
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_spark_attaches_the_catalog(tmp_path: Path) -> None:
    environment = ROOT / "build" / "iceberg-spark"
    make_environment(environment)
    (jar,) = environment.glob("*.jar")
    packages = environment / "packages"
    number = "cast(cast(body as string) as int)"
    query = f"select queue, count(*), sum({number}) from lake.leveret.messages group by queue order by queue"
    with archiving(tmp_path) as broker:
        wait_until(lambda: bodies(broker) == Counter(range(15)), "the table has all messages")
        said = subprocess.run(
            [sys.executable, "-c", _IN_SPARK, str(jar), f"{Management(broker.http_url).base}/iceberg", query],
            env={**os.environ, "PYTHONPATH": str(packages), "SPARK_HOME": str(packages / "pyspark")},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
    assert json.loads(said.splitlines()[-1]) == [["mails", 5, 60], ["orders", 10, 45]]


_IN_DUCKDB = """
import json, pathlib, sys
directory, table, uri, authorization = sys.argv[1:]
sys.path.insert(0, directory)
import duckdb
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for name in ("httpfs", "avro", "iceberg"):
    (path,) = pathlib.Path(directory).rglob(f"{name}.duckdb_extension")
    connection.load_extension(str(path))
connection.execute(
    f"create secret (type http, scope '{uri}', extra_http_headers map {{'Authorization': '{authorization}'}})"
)
connection.execute(f"attach 'lake' as lake (type iceberg, endpoint '{uri}', authorization_type 'none')")
counts = "select queue, count(*) from {} group by queue order by queue"
for source in (f"iceberg_scan('{table}')", "lake.leveret.messages"):
    print(json.dumps(connection.sql(counts.format(source)).fetchall()))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", ["1.4.4", "1.5.5"])
def test_duckdb_attaches_the_catalog_and_reads_without_it(tmp_path: Path, version: str) -> None:
    """By its extensions, which are on PyPI for these versions of DuckDB."""
    directory = ROOT / "build" / f"iceberg-duckdb-{version}"
    if not directory.exists():
        names = ("duckdb", "duckdb-extension-avro", "duckdb-extension-httpfs", "duckdb-extension-iceberg")
        packages = [f"{name}=={version}" for name in names]
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(directory), *packages]
        subprocess.run(install, check=True)
    with archiving(tmp_path) as broker:
        wait_until(lambda: bodies(broker) == Counter(range(15)), "the table has all messages")
        table = str(tmp_path / "archive" / "iceberg" / "leveret" / "messages")
        uri = f"{Management(broker.http_url).base}/iceberg"
        login = f"Basic {b64encode(b'guest:guest').decode()}"
        command = [sys.executable, "-I", "-c", _IN_DUCKDB, str(directory), table, uri, login]
        said = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    assert [json.loads(line) for line in said.splitlines()] == [[["mails", 5], ["orders", 10]]] * 2


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

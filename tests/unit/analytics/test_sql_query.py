"""The process that answers a SQL statement: what it sees, what it may do, and what it writes."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.sql_query import FAILED, WRONG_STATEMENT
from leveret.storage.disk.files import DiskFiles
from leveret.storage.event_format import EventKind
from leveret.storage.readers.body_rules import read_rule, write_rules
from tests.spark.directories import DirectoryBuilder
from tests.support.archived import archive

ALL = {"/": None, "other": None}


class Answer(NamedTuple):
    status: int
    output: bytes
    said: str

    @property
    def rows(self) -> list[list[Any]]:
        assert self.status == 0, self.said
        found: list[list[Any]] = json.loads(self.output)["rows"]
        return found


class Database:
    def __init__(self, path: str, archive: str = "") -> None:
        self.path = path
        self.archive = archive

    def ask(self, statement: str, readable: dict[str, Any] = ALL, **more: Any) -> Answer:
        request = {
            "statement": statement,
            "data_dir": self.path,
            "archive": self.archive,
            "readable": readable,
            "has_audit": False,
            "form": "json",
            "rows": 1000,
            "memory": 128 << 20,
            **more,
        }
        command = [sys.executable, "-m", "leveret.analytics.sql_query"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            # Its stdin stays open until it has ended, as the broker's does.
            output, said = process.stdout.read(), process.stderr.read().decode()
            return Answer(process.wait(), output, said.strip())


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Queues orders and secret in /, mail in other; a message of each was acknowledged, and all is archived."""
    path = tmp_path_factory.mktemp("sql")
    builder = DirectoryBuilder(path / "data")
    for name, vhost in (("orders", "/"), ("secret", "/"), ("mail", "other")):
        store = builder.store(builder.queue(name, vhost))
        bodies = [json.dumps({"of": name, "n": number}).encode() for number in range(4)]
        builder.publish(store, [*bodies, b"\xff\x00"], headers={"region": "eu"}, message_id=name)
        builder.settle(store, 1, EventKind.ACK)
    builder.audit("queue.deleted", "orders")
    builder.audit("alarm.set", "alarm", None)
    builder.tick()
    orders = {"queue": ["orders", "secret"], "format": "json", "schema": "of string, n bigint"}
    rules = [read_rule("orders", orders, "/"), read_rule("mail", {**orders, "schema": "x"}, "other")]
    write_rules(DiskFiles(), builder.path, rules)
    archive(builder, ArchiveFiles(str(path / "archive")))
    yield Database(builder.path, str(path / "archive"))
    builder.close()


def test_it_answers_over_each_table(database: Database) -> None:
    for table in ("messages", "archived_messages"):
        counts = f"select vhost, queue, count(*) from {table} group by all order by queue"
        left = 4 if table == "messages" else 5
        assert database.ask(counts).rows == [["other", "mail", left], ["/", "orders", left], ["/", "secret", left]]
    for table in ("events", "archived_events"):
        assert database.ask(f"select kind, sum(messages) from {table} group by kind").rows == [["ack", 3]]
    assert database.ask("select queue, messages from queues order by queue limit 1").rows == [["mail", 4]]
    assert database.ask("select sum(messages) from segments").rows == [[12]]
    assert database.ask("select count(*) from delayed").rows == [[0]]
    joined = "select count(*) from messages as m join queues as q on m.queue = q.queue and m.vhost = q.vhost"
    assert database.ask(joined).rows == [[12]]


@pytest.mark.parametrize("table", ["messages", "archived_messages", "events", "archived_events", "queues", "segments"])
def test_only_what_the_user_may_read_is_there(database: Database, table: str) -> None:
    names = f"select distinct vhost, queue from {table} order by all"
    assert database.ask(names, {"/": ["orders", "gone"]}).rows == [["/", "orders"]]
    assert database.ask(names, {"/": ["mail"], "other": []}).rows == []
    assert database.ask(names, {"other": None}).rows == [["other", "mail"]]
    assert database.ask(names, {}).rows == []


def test_rules_for_bodies_are_tables(database: Database) -> None:
    for table, count in (("bodies_orders", 3), ("archived_bodies_orders", 4)):
        columns = "value.of, sum(value.n), count(*), count(value_error)"
        sums = f"select {columns} from {table} group by 1 order by 1 nulls first"
        wanted = [[None, None, 2, 2], ["orders", 6, count, 0], ["secret", 6, count, 0]]
        assert database.ask(sums).rows == wanted
        assert database.ask(f"select distinct queue from {table}", {"/": ["orders"]}).rows == [["orders"]]
        # Who may not enter the virtual host of a rule does not know of it.
        assert "does not exist" in database.ask(f"select * from {table}", {"other": None}).said
    broken = database.ask("select * from bodies_mail")
    assert (broken.status, broken.said.partition(":")[0]) == (FAILED, "rule 'mail' for bodies")
    assert "\n" not in broken.said
    assert database.ask("select count(*) from messages").rows == [[12]]


def test_the_audit_log_is_for_those_who_may_read_it(database: Database) -> None:
    for name in ("audit", "archived_audit"):
        # All of it, also what is not of a virtual host: permissions in these do not count.
        for readable in ({}, {"other": None}):
            objects = f"select object from {name} order by all"
            assert database.ask(objects, readable, has_audit=True).rows == [["alarm"], ["orders"]]
    for name in ("audit", "AUDIT", '"audit"', "archived_audit"):
        assert "does not exist" in database.ask(f"select * from {name}").said


def test_no_condition_is_evaluated_on_other_rows(database: Database) -> None:
    """An error of a condition would say something about the row that it was evaluated on."""
    tell = "select count(*) from {} where case when queue = 'secret' then error(message_id) else false end"
    for table in ("messages", "archived_messages"):
        assert "secret" in database.ask(tell.format(table)).said
        assert database.ask(tell.format(table), {"/": ["orders"]}).rows == [[0]]


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        ("select * from read_text('/etc/passwd')", "file system operations are disabled"),
        ("select * from '/etc/passwd'", "does not exist"),
        ("select * from glob('/*')", "file system operations are disabled"),
        ("select * from read_parquet('http://127.0.0.1:1/x')", "file system operations are disabled"),
        ("copy messages to '/tmp/stolen.csv'", "only SELECT can be run here, and this is COPY"),
        ("attach '/tmp/stolen.db'", "only SELECT can be run here, and this is ATTACH"),
        ("install httpfs", "only SELECT can be run here"),
        ("set memory_limit = '100GB'", "only SELECT can be run here, and this is SET"),
        ("pragma enable_profiling", "only SELECT can be run here, and this is PRAGMA"),
        ("create table mine as select 1", "only SELECT can be run here, and this is CREATE"),
        ("delete from messages", "only SELECT can be run here, and this is DELETE"),
        ("select 1; copy messages to '/tmp/stolen.csv'", "write one statement, not 2"),
        ("with x as (insert into messages select * from messages returning *) from x", "messages is not an table"),
        ("select * from query('copy messages to ''/tmp/stolen.csv''')", ""),
        ("select * from request", "does not exist"),
        ("select * from sys.modules", "does not exist"),
        ("select list(range) from range(1000000000)", "the statement needs more than 128 MiB (sql.memory_limit)"),
        ("select length(repeat('x', 2000000000))", "the statement needs more than 128 MiB (sql.memory_limit)"),
        ("with recursive r as (select 1 as n union all select n + 1 from r) select list(n) from r", "128 MiB"),
        ("select nothing from messages", 'column "nothing"'),
        ("selec", "Parser Error"),
        ("", "write one statement, not 0"),
    ],
)
def test_attacks_and_mistakes_get_a_line(database: Database, attack: str, reason: str) -> None:
    answer = database.ask(attack)
    assert answer.status == WRONG_STATEMENT, answer
    assert not answer.output
    assert len(answer.said.splitlines()) == 1
    assert reason.lower() in answer.said.lower()
    assert not Path("/tmp/stolen.csv").exists()


def test_values_as_json_and_as_text(database: Database) -> None:
    body = "select as_text(body), as_json(body) ->> '$.of', body from messages where queue = 'orders' order by seq"
    first, *_, last = database.ask(body).rows
    assert first == ['{"of": "orders", "n": 1}', "orders", '{"of": "orders", "n": 1}']
    assert last == [None, None, "base64:/wA="]
    kinds = (
        "select 'nan'::double, [1, 2], {'a': 1}, map {'k': 1}, 1::hugeint, 1.5::decimal(4, 2), date '2020-01-31', null"
    )
    assert database.ask(kinds).rows == [["nan", [1, 2], {"a": 1}, {"k": 1}, 1, 1.5, "2020-01-31", None]]
    header = "select distinct headers['region'] from messages"
    assert database.ask(header).rows == [["eu"]]


def test_a_result_has_a_limit_and_says_so(database: Database) -> None:
    found = json.loads(database.ask("select seq from messages", rows=3).output)
    assert (len(found["rows"]), found["truncated"]) == (3, True)
    assert found["columns"] == [{"name": "seq", "type": "BIGINT"}]
    found = json.loads(database.ask("select seq from messages limit 3", rows=3).output)
    assert (len(found["rows"]), found["truncated"]) == (3, False)
    # Rows that nobody gets are not computed.
    assert len(database.ask("select range, repeat('x', 1000) from range(100000000)", rows=3).rows) == 3
    # Nor does a page get more than it can show.
    found = json.loads(database.ask("select repeat('x', 100000) from range(1000)", memory=512 << 20).output)
    assert (len(found["rows"]), found["truncated"]) == (335, True)


def test_files(database: Database) -> None:
    statement = "select queue, seq, [1, 2] as list from messages where queue = 'orders' order by seq"
    answer = database.ask(statement, form="csv", rows=2)
    assert list(csv.reader(io.StringIO(answer.output.decode()))) == [
        ["queue", "seq", "list"],
        ["orders", "2", "[1, 2]"],
        ["orders", "3", "[1, 2]"],
    ]
    answer = database.ask(statement, form="parquet", rows=2)
    assert pq.read_table(io.BytesIO(answer.output)).to_pylist() == [
        {"queue": "orders", "seq": 2, "list": [1, 2]},
        {"queue": "orders", "seq": 3, "list": [1, 2]},
    ]
    answer = database.ask("select interval 1 day as day", form="parquet")
    assert (answer.status, answer.output) == (WRONG_STATEMENT, b"")
    assert "cast the column to varchar" in answer.said


def test_a_data_directory_that_cannot_be_read_is_a_line(tmp_path: Path) -> None:
    answer = Database(str(tmp_path)).ask("select * from messages")
    assert answer.status == FAILED
    assert str(tmp_path) in answer.said
    assert "Traceback" not in answer.said
    missing = Database(str(tmp_path), str(tmp_path / "archive")).ask("select * from archived_messages")
    assert missing.status == FAILED
    assert "Traceback" not in missing.said


def test_it_ends_with_its_stdin(database: Database) -> None:
    command = [sys.executable, "-m", "leveret.analytics.sql_query"]
    endless = "select count(*) from range(100000000000) as a where a.range % 7 = 8"
    request = {
        "statement": endless,
        "data_dir": database.path,
        "archive": "",
        "readable": ALL,
        "has_audit": False,
        "form": "json",
    }
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps({**request, "rows": 1, "memory": 64 << 20}).encode() + b"\n")
        process.stdin.close()
        assert process.wait(120) == FAILED

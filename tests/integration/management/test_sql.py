"""SQL statements over HTTP and by leveretctl, against a running broker."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management
from tests.support.wire import Connection

#: Has no end, and needs no memory.
ENDLESS = "select count(*) from range(100000000000) as a where a.range % 7 = 8"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    """Queues orders and secret, each with three messages; two statements may run at a time."""
    settings: dict[str, object] = {"sql.timeout": "10m", "sql.max_rows": 5000}
    with LeveretProcess(tmp_path_factory.mktemp("sql"), settings=settings) as process:
        with Connection(process.url) as connection:
            channel = connection.channel()
            channel.confirm_select()
            for queue in ("orders", "secret"):
                channel.queue_declare(queue, durable=True, arguments=[("x-queue-mode", "S", "lazy")])
                for number in range(3):
                    channel.publish("", queue, b"%d" % number, {"delivery_mode": 2})
            channel.wait_for_confirms(6)
        api = Management(process.http_url)
        counts = "select count(*) from messages"
        wait_until(lambda: api.request("POST", "sql", body={"statement": counts})["rows"] == [[6]], "a tick")
        yield process


def sql(broker: LeveretProcess, statement: str, user: str = "guest", **more: Any) -> Any:
    api = Management(broker.http_url.replace("guest:guest", f"{user}:{user}"))
    return api.request("POST", "sql", body={"statement": statement, **more})


def refusal(broker: LeveretProcess, statement: str, user: str = "guest", **more: Any) -> tuple[int, str]:
    api = Management(broker.http_url.replace("guest:guest", f"{user}:{user}"))
    return api.refusal("POST", "sql", body={"statement": statement, **more})


def processes(broker: LeveretProcess) -> list[int]:
    """The processes of statements that run."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"leveret.analytics.sql_query" in words and int(parent) == broker.pid:
            found.append(int(name))
    return found


def test_users_see_the_queues_that_they_may_read(broker: LeveretProcess) -> None:
    api = Management(broker.http_url)
    api.request("PUT", "users", "clerk", body={"password": "clerk", "tags": "management"})
    counts = "select queue, count(*) from messages group by all order by queue"
    assert sql(broker, counts)["rows"] == [["orders", 3], ["secret", 3]]
    assert sql(broker, counts, "clerk")["rows"] == []
    api.request("PUT", "permissions", "/", "clerk", body={"configure": ".*", "write": ".*", "read": "^ord"})
    assert sql(broker, counts, "clerk")["rows"] == [["orders", 3]]
    audited = "select count(*) > 0 from audit where kind = 'permission.created'"
    assert sql(broker, audited)["rows"] == [[True]]
    assert "does not exist" in refusal(broker, audited, "clerk")[1]
    api.request("PUT", "users", "nobody", body={"password": "nobody", "tags": ""})
    assert refusal(broker, counts, "nobody")[0] == 401


def test_what_is_wrong_is_said(broker: LeveretProcess) -> None:
    assert refusal(broker, "drop table messages") == (
        400,
        "only SELECT can be run here, and this is DROP",
    )
    assert refusal(broker, "select 1", format="xml")[1] == "format must be one of json, csv, parquet"
    assert refusal(broker, "select 1", rows=5001)[1] == "rows must be 1 to 5000 (sql.max_rows)"
    assert refusal(broker, "select 1", rows=0)[0] == 400
    assert Management(broker.http_url).refusal("POST", "sql", body={})[0] == 400


def test_a_statement_that_takes_too_long_is_killed(leveret_process: Callable[..., LeveretProcess]) -> None:
    hasty = leveret_process(settings={"sql.timeout": "1s"})
    status, reason = refusal(hasty, ENDLESS)
    assert status == 400
    assert reason.startswith("the statement took longer than 1 s (sql.timeout)")
    wait_until(lambda: not processes(hasty), "the process to end")


def test_sql_can_be_switched_off(leveret_process: Callable[..., LeveretProcess]) -> None:
    without = leveret_process(settings={"sql.concurrency": 0})
    assert refusal(without, "select 1") == (503, "SQL is switched off: sql.concurrency is 0")


def test_no_more_run_than_may_and_a_closed_connection_ends_one(broker: LeveretProcess) -> None:
    authorization = Management(broker.http_url).authorization
    connections = []
    for _ in range(2):
        connection = http.client.HTTPConnection(urlsplit(Management(broker.http_url).base).netloc)
        connection.request("POST", "/api/sql", json.dumps({"statement": ENDLESS}), {"Authorization": authorization})
        connections.append(connection)
    reasons: list[str] = []
    try:
        wait_until(lambda: len(processes(broker)) == 2, "two statements")
        status, reason = refusal(broker, "select 1")
        reasons.append(reason)
        assert status == 503
    finally:
        for connection in connections:
            connection.close()
    assert reasons == ["2 statements are running already (sql.concurrency); try again later"]
    wait_until(lambda: not processes(broker), "both processes to end")
    assert sql(broker, "select 1")["rows"] == [[1]]


def test_leveretctl(broker: LeveretProcess, tmp_path: Path) -> None:
    leveretctl = Leveretctl(broker.http_url)
    found = leveretctl.output("sql", "select queue, list(seq) as seqs from messages group by all order by queue")
    assert found.splitlines() == ["queue\tseqs", "orders\t[1, 2, 3]", "secret\t[1, 2, 3]"]
    found = leveretctl.output("sql", "--limit", "1", stdin="select seq, seq from messages")
    more = "There are more than 1 rows; --limit shows more of them"
    assert found.splitlines() == ["seq\tseq (2)", "1\t1", more]
    path = tmp_path / "result.parquet"
    leveretctl.output("sql", "select queue from messages", "--output", str(path))
    assert pq.read_table(path).num_rows == 6
    failed = leveretctl("sql", "selec")
    assert (failed.status, "Parser Error" in failed.err) == (69, True)

"""The page that answers SQL statements."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.csv
from playwright.sync_api import expect

from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Connection
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]


def test_questions_are_answered(new_ui: NewUi, own_broker: LeveretProcess, console: Console, tmp_path: Path) -> None:
    console.allow(400)
    with Connection(own_broker.url) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for queue, count in (("orders", 3), ("mail", 1)):
            channel.queue_declare(queue, durable=True, arguments=[("x-queue-mode", "S", "lazy")])
            for number in range(count):
                channel.publish("", queue, b'{"customer": "c%d"}' % number, {"delivery_mode": 2})
        channel.wait_for_confirms(4)
    api = Management(own_broker.http_url)
    counts = {"statement": "select count(*) from messages"}
    wait_until(lambda: api.request("POST", "sql", body=counts)["rows"] == [[4]], "a tick")
    ui = new_ui(url=own_broker.http_url, address="#/sql")
    statement, question = ui.main.locator("textarea"), ui.main.get_by_label("Question")
    run = ui.main.get_by_role("button", name="Run")
    result = ui.main.get_by_role("region", name="result").locator("tbody tr")
    for example in range(1, question.locator("option").count()):
        question.select_option(index=example)
        run.click()
        expect(run).to_be_enabled()
        expect(ui.main.locator(".sql-result p")).to_contain_text("row")
    question.select_option(label="What waits where, and since when?")
    run.click()
    expect(result).to_have_count(2)
    expect(result.first).to_contain_text("orders")
    bars = ui.main.get_by_role("region", name="chart").locator("tbody tr")
    expect(bars.first).to_have_text("/, orders3")
    statement.fill("drop table messages")
    run.click()
    expect(ui.main.locator(".notice.error")).to_have_text("only SELECT can be run here, and this is DROP")
    statement.fill("select count(*) from range(100000000000) as a where a.range % 7 = 8")
    run.click()
    ui.main.get_by_role("button", name="Cancel").click()
    expect(ui.main.locator(".notice.done")).to_have_text("Cancelled.")
    statement.fill("select queue, as_json(body) ->> '$.customer' as customer from messages order by all")
    ui.main.get_by_label("Result").select_option("csv")
    with ui.page.expect_download() as download:
        run.click()
    download.value.save_as(tmp_path / "result.csv")
    assert download.value.suggested_filename == "result.csv"
    assert pyarrow.csv.read_csv(tmp_path / "result.csv").to_pylist()[-1] == {"queue": "orders", "customer": "c2"}

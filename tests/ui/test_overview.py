"""The overview."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pika
from playwright.sync_api import expect

from leveret.storage.disk.files import DiskFiles
from leveret.storage.readers.reader_file import READERS, ReaderFile, write_reader
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
STARTED: Final = re.compile(r"Ready: now 25, lowest \d+, highest 25")


def test_numbers_and_charts_are_those_of_the_broker(new_ui: NewUi, own_broker: LeveretProcess) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(own_broker.url))
    channel = connection.channel()
    channel.queue_declare("shown")
    for _ in range(25):
        channel.basic_publish("", "shown", b"x")
    ui = new_ui(url=own_broker.http_url)
    ui.choose("refresh", "1")
    tiles = ui.main.locator(".tiles li")
    expect(tiles.filter(has_text="Connections")).to_contain_text("1")
    expect(tiles.filter(has_text="Ready")).to_contain_text("25")
    lengths = ui.main.get_by_role("img", name="Queued messages")
    expect(lengths).to_have_attribute("aria-label", STARTED, timeout=120_000)
    expect(ui.main.locator(".legend").first).to_contain_text("Ready 25")
    lengths.focus()
    lengths.press("ArrowLeft")
    expect(ui.main.locator(".legend").first).to_contain_text("at ")
    connection.close()
    expect(tiles.filter(has_text="Connections")).to_contain_text("0")


def test_what_is_wrong_comes_first(new_ui: NewUi, own_broker: LeveretProcess) -> None:
    api = Management(own_broker.http_url)
    ui = new_ui(url=own_broker.http_url, viewport={"width": 390, "height": 844})
    problems = ui.main.get_by_role("region", name="Problems")
    expect(problems).to_have_text("No queue is full, and no message was lost in the last 24 hours.")
    for number in range(4):
        api.request("PUT", "queues", "/", f"full-{number}", body={"arguments": {"x-max-length": 2}})
    api.request("PUT", "queues", "/", "nearly", body={"arguments": {"x-max-length": 100}})
    # Removing what is old is what limits of a stream are for.
    limits = {"x-queue-type": "stream", "x-max-length-bytes": 1}
    api.request("PUT", "queues", "/", "stream", body={"durable": True, "arguments": limits})
    counts = {"full-0": 2, "full-1": 2, "full-2": 12, "full-3": 5, "nearly": 85, "stream": 3}
    with pika.BlockingConnection(pika.URLParameters(own_broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name, count in counts.items():
            for _ in range(count):
                channel.basic_publish("", name, b"x")
    job = api.request("POST", "queues", "/", "full-2", "move-messages", body={"to": "nearly", "job": True, "rate": 1})
    api.request("DELETE", "queues", "/", "full-2")
    ui.choose("refresh", "1")
    full = problems.locator(".problem").filter(has_text="3 queues are full")
    expect(full.get_by_role("listitem")).to_have_count(3)
    expect(full.get_by_role("img").first).to_have_attribute("aria-label", "Messages: 2 of 2, 100%")
    lost = problems.locator(".problem").filter(has_text="13 messages lost in the last 24 hours")
    expect(lost.get_by_role("listitem").first).to_have_text(re.compile(r"^full-2 \(queue, deleted\)10"))
    for part in (full, lost):
        expect(part.locator("h2")).to_be_in_viewport(ratio=1)
    expect(problems.locator(".problem").filter(has_text="1 queue above 80%")).to_contain_text("nearly")
    stuck = problems.locator(".problem").filter(has_text="1 job failed or waiting")
    expect(stuck.get_by_role("link", name=f"Job {job['id']}")).to_have_attribute("href", f"#/jobs/%2F/{job['id']}")
    full.get_by_role("link", name="All queues by fill").click()
    expect(ui.main.get_by_role("columnheader", name="Fill")).to_have_attribute("aria-sort", "descending")
    expect(ui.main.locator("tbody td.name").last).to_have_text("stream")


def test_named_readers_are_shown_and_dropped(new_ui: NewUi, own_broker: LeveretProcess) -> None:
    # Seen in the year 2100, so that it is not dropped for its age.
    seen = 4_102_444_800_000_000
    reader = ReaderFile("lake", None, "orders.*", seen, seen, {})
    ui = new_ui(url=own_broker.http_url)
    ui.choose("refresh", "1")
    expect(ui.main).to_contain_text("Churn")
    section = ui.main.locator("section.section").filter(has=ui.page.locator("h2", has_text="Readers"))
    expect(section).to_have_count(0)
    write_reader(DiskFiles(), str(own_broker.data_dir), reader)
    row = section.get_by_role("row").filter(has_text="lake")
    expect(row.get_by_role("cell").nth(1)).to_have_text("all")
    expect(row.get_by_role("cell").nth(2)).to_have_text("orders.*")
    row.get_by_role("button", name="Drop …").click()
    ui.page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    expect(section).to_have_count(0)
    assert not (own_broker.data_dir / READERS / "lake").exists()


def test_charts_look_back_as_far_as_is_asked(ui: Ui) -> None:
    with ui.page.expect_response(
        lambda response: "/api/overview?" in response.url and "lengths_age=3600" in response.url
    ) as answer:
        ui.choose("range", "3600")
    assert len(answer.value.json()["queue_totals"]["messages_details"]["samples"]) == 61
    ui.page.reload()
    expect(ui.page.get_by_label("Charts", exact=True)).to_have_value("3600")


def test_definitions_go_out_and_in(new_ui: NewUi, own_broker: LeveretProcess, tmp_path: Path, console: Console) -> None:
    api = Management(own_broker.http_url)
    # No number of JavaScript.
    arguments = {"limit": 2**53 + 1}
    api.request("PUT", "queues", "/", "defined", body={"durable": True, "arguments": arguments})
    ui = new_ui(url=own_broker.http_url)
    ui.main.get_by_text("Definitions", exact=True).click()
    with ui.page.expect_download() as download:
        ui.main.get_by_role("link", name="Export definitions").click()
    assert download.value.suggested_filename.startswith("leveret-definitions-")
    file = tmp_path / "definitions.json"
    download.value.save_as(file)
    assert [queue["name"] for queue in json.loads(file.read_text())["queues"]] == ["defined"]
    api.request("DELETE", "queues", "/", "defined")

    ui.main.get_by_label("Definitions file").set_input_files(file)
    ui.main.get_by_role("button", name="Import").click()
    dialog = ui.page.get_by_role("dialog", name="Import definitions")
    expect(dialog).to_contain_text("definitions.json")
    ui.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert api.request("GET", "queues") == []
    ui.main.get_by_label("Definitions file").set_input_files(file)
    ui.main.get_by_role("button", name="Import").click()
    dialog.get_by_role("button", name="Import").click()
    expect(ui.main.get_by_role("status").filter(has_text="has been imported")).to_be_visible()
    assert [(queue["name"], queue["arguments"]) for queue in api.request("GET", "queues")] == [("defined", arguments)]

    file.write_text("queues: []")
    ui.main.get_by_label("Definitions file").set_input_files(file)
    ui.main.get_by_role("button", name="Import").click()
    expect(ui.main.get_by_text("definitions.json is not JSON")).to_be_visible()

    console.allow(400)
    file.write_text('{"queues": [{"name": 1}]}')
    ui.main.get_by_label("Definitions file").set_input_files(file)
    ui.main.get_by_role("button", name="Import").click()
    dialog.get_by_role("button", name="Import").click()
    expect(dialog.get_by_role("alert")).not_to_be_empty()
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)

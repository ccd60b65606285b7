"""The list of jobs, and the page of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from playwright.sync_api import Route, expect

from tests.support.management import Management
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
VHOST: Final = "jobs shown"


@pytest.fixture(autouse=True)
def no_jobs(api: Management, vhost: str) -> None:
    """Forget the jobs of earlier tests, which outlive their virtual host."""
    for job in api.request("GET", "jobs", vhost):
        for _ in range(1 + (job["state"] == "running")):
            api.request("DELETE", "jobs", vhost, job["id"])


def start(api: Management, queue: str, **options: Any) -> str:
    body = {"to": "target", "job": True, **options}
    job: str = api.request("POST", "queues", VHOST, queue, "move-messages", body=body)["id"]
    return job


def test_progress_is_shown_and_a_job_is_cancelled(
    new_ui: NewUi, api: Management, vhost: str, declare: Callable[..., None]
) -> None:
    declare("target")
    declare("slow", 4)
    declare("fast", 2)
    slow, fast = start(api, "slow", rate=0.01), start(api, "fast")
    ui = new_ui(address="#/jobs")
    ui.choose("vhost", vhost)
    rows = ui.rows()
    expect(rows).to_have_count(2)
    # What is running comes first.
    expect(rows.nth(0)).to_contain_text("running")
    expect(rows.nth(0).get_by_role("progressbar")).to_have_attribute("aria-label", "Progress: 1 of 4")
    expect(rows.nth(0).get_by_role("link", name="slow")).to_have_attribute("href", "#/queues/jobs%20shown/slow")
    rows.nth(0).get_by_role("link", name="Move messages").click()
    expect(ui.page).to_have_title(f"Job {slow} – Leveret")
    facts = ui.main.locator("dl.properties").first
    expect(facts).to_contain_text("Moved1 messages")
    expect(facts).to_contain_text("to:target")
    expect(facts.get_by_role("link", name="slow")).to_have_attribute("href", "#/queues/jobs%20shown/slow")
    ui.main.get_by_role("button", name=f"Cancel job {slow}").click()
    ui.page.get_by_role("dialog", name="Cancel a job").get_by_role("button", name="Cancel the job").click()
    expect(facts).to_contain_text("cancelled")
    assert api.request("GET", "jobs", vhost, slow)["state"] == "cancelled"
    ui.main.get_by_role("button", name=f"Remove job {slow}").click()
    ui.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(ui.page).to_have_title("Jobs – Leveret")
    expect(rows).to_have_count(1)
    assert [job["id"] for job in api.request("GET", "jobs", vhost)] == [fast]


def test_why_a_job_has_failed_or_left_messages(
    new_ui: NewUi, api: Management, vhost: str, declare: Callable[..., None], console: Console
) -> None:
    # Until the job notices that its queue is gone.
    console.allow(404)
    declare("target")
    declare("source", 3)
    job = start(api, "source", rate=1)
    api.request("DELETE", "queues", vhost, "source")
    ui = new_ui(address=f"#/jobs/{vhost}/{job}")
    ui.choose("refresh", "1")
    expect(ui.main.locator(".notice.error").locator("visible=true")).to_contain_text("source")
    declare("others", 2)
    left = api.request("POST", "queues", vhost, "others", "return-messages", body={})["id"]
    ui.go(f"#/jobs/{vhost}/{left}")
    table = ui.main.get_by_role("region", name="Left where they are")
    expect(table.locator("tbody tr")).to_have_text("it is not a dead letter2")


def test_a_paused_job_is_resumed(
    new_ui: NewUi, api: Management, vhost: str, declare: Callable[..., None], console: Console
) -> None:
    # Three crashes would take too long: the page is told that the job is paused, and the broker that it is to go on.
    console.allow(400)
    declare("target")
    declare("slow", 4)
    job = start(api, "slow", rate=0.01)

    def pause(route: Route) -> None:
        found = route.fetch()
        route.fulfill(response=found, json={**found.json(), "state": "paused", "error": "the broker has ended badly"})

    ui = new_ui()
    ui.page.route(re.compile(f"/api/jobs/[^/]+/{job}$"), pause)
    ui.go(f"#/jobs/{vhost}/{job}")
    expect(ui.main.locator(".notice.warning").locator("visible=true")).to_have_text("the broker has ended badly")
    expect(ui.main.get_by_role("button", name=f"Cancel job {job}")).to_be_visible()
    ui.main.get_by_role("button", name=f"Resume job {job}").click()
    dialog = ui.page.get_by_role("dialog", name="Resume a job")
    dialog.get_by_role("button", name="Resume the job").click()
    expect(dialog).to_contain_text(f"job '{job}' is running, not paused")

"""What a broker says about the backups that it takes: over HTTP, by leveretctl, in metrics and in the log."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.integration.program import run as run_program
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management
from tests.support.wire import Connection


def metrics(process: LeveretProcess) -> dict[str, float]:
    with urllib.request.urlopen(f"{process.prometheus_url}/metrics", timeout=120) as response:
        families = text_string_to_metric_families(response.read().decode())
        return {
            sample.name: sample.value
            for family in families
            for sample in family.samples
            if sample.name.startswith("leveret_backup")
        }


def test_what_there_is_and_how_old_it_is(tmp_path: Path) -> None:
    url = tmp_path / "backup"
    settings: dict[str, object] = {"backup.url": url, "backup.log_interval": "1s"}
    with LeveretProcess(tmp_path, settings=settings) as process:
        api, leveretctl = Management(process.http_url), Leveretctl(process.http_url)
        with Connection(process.url) as connection:
            connection.channel().queue_declare("q", durable=True)
        wait_until(lambda: api.request("GET", "backups")["backups"], "a backup")
        found = api.request("GET", "backups")
        assert (found["url"], found["error"], found["failures"], found["late"]) == (str(url), None, 0, False)
        assert 0 <= found["age"] < 60
        (first,) = found["backups"]
        assert first["moment"] <= first["until"]
        assert first["bytes"] >= first["new_bytes"] > 1000
        assert first["seconds"] > 0
        assert found["restorable"][0]["from"] == first["moment"]
        # What is sent meanwhile prolongs what can be restored.
        with Connection(process.url) as connection:
            connection.channel().queue_declare("r", durable=True)
        wait_until(lambda: api.request("GET", "backups")["restorable"][0]["to"] > first["until"], "a later moment")
        lines = leveretctl.output("list_backups", "moment", "bytes", "-s").splitlines()
        assert lines[0].split("\t")[1] == str(first["bytes"])
        shown = lines[0].split("\t")[0]
        assert run_program("restore", "--from", str(url), "--data-dir", str(tmp_path / "r"), "--at", shown).stderr == ""
        (row,) = json.loads(leveretctl.output("list_backups", "--formatter", "json"))
        assert row["moment"] == shown
        assert set(row) == {"moment", "until", "bytes", "new_bytes", "seconds", "files"}
        told = metrics(process)
        assert told["leveret_backup_age_seconds"] < 60
        assert told["leveret_backup_failures_total"] == 0
        assert told["leveret_backup_sent_bytes_total"] >= first["new_bytes"]
        # The next broker knows at once what there is.
        process.restart()
        wait_until(lambda: api.request("GET", "backups")["backups"], "the backups of before")
        assert api.request("GET", "backups")["backups"][-1]["moment"] == first["moment"]


def test_failures_are_told(tmp_path: Path) -> None:
    url = tmp_path / "backup"
    url.mkdir()
    (url / "file").write_text("of somebody else")
    with LeveretProcess(tmp_path, settings={"backup.url": url}) as process:
        api, leveretctl = Management(process.http_url), Leveretctl(process.http_url)
        wait_until(lambda: api.request("GET", "backups")["failures"], "a failure")
        found = api.request("GET", "backups")
        assert found["backups"] == found["restorable"] == []
        assert leveretctl.output("list_backups", "-s").splitlines() == []
        assert metrics(process)["leveret_backup_failures_total"] > 0
        wait_until(lambda: "it is started again" in process.log_text(), "the end of the program")
        assert "backup is not empty, and is no backup of Leveret; use another place" in process.log_text()
        (url / "file").unlink()
        wait_until(lambda: api.request("GET", "backups")["backups"], "a backup once the reason is gone")
        assert api.request("GET", "backups")["error"] is None
        assert "backups are taken again" in process.log_text()


def test_who_may_see_them_and_a_broker_without(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as process:
        api = Management(process.http_url)
        assert api.request("GET", "backups")["url"] is None
        assert metrics(process) == {}
        said = Leveretctl(process.http_url)("list_backups")
        assert said.status != 0
        assert "the broker takes no backups: backup.url is not set" in said.err
        api.request("PUT", "users", "some", body={"password": "secret", "tags": "management"})
        other = Management(process.http_url.replace("guest:guest", "some:secret"))
        assert other.refusal("GET", "backups")[0] == 401

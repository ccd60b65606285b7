"""Named readers of streaming queries, over HTTP and by leveretctl."""

from __future__ import annotations

import json
from pathlib import Path

from leveret.storage.disk.files import DiskFiles
from leveret.storage.readers.reader_file import READERS, ReaderFile, write_reader
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management

#: In the year 2100, so that none is dropped for its age.
SEEN = 4_102_444_800_000_000


def refused(api: Management, method: str, *path: str) -> int:
    return api.refusal(method, *path)[0]


def test_readers_are_listed_and_dropped(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as broker:
        api, leveretctl = Management(broker.http_url), Leveretctl(broker.http_url)
        assert api.request("GET", "readers") == []
        for name in ("lake", "search"):
            reader = ReaderFile(name, "/", None if name == "search" else "orders.*", SEEN, SEEN, {"1/0": 41})
            write_reader(DiskFiles(), str(broker.data_dir), reader)
        wait_until(lambda: len(api.request("GET", "readers")) == 2, "the broker has seen both")
        expected = {
            "name": "lake",
            "vhost": "/",
            "queue": "orders.*",
            "created": SEEN // 1000,
            "seen": SEEN // 1000,
            "held_bytes": 0,
        }
        assert api.request("GET", "readers", "lake") == expected
        assert expected in json.loads(leveretctl.output("list_readers", "--formatter", "json"))
        assert "Reader 'lake' is deleted" in leveretctl.output("delete_reader", "lake")
        assert [each["name"] for each in api.request("GET", "readers")] == ["search"]
        again = leveretctl("delete_reader", "lake")
        assert again.status != 0
        assert "there is no reader 'lake'" in again.err
        api.request("DELETE", "readers", "search")
        assert not any((broker.data_dir / READERS).iterdir())
        assert [refused(api, method, "readers", "search") for method in ("GET", "DELETE")] == [404, 404]
        # Only a name, and never a path.
        assert refused(api, "DELETE", "readers", "../FORMAT") == 404
        assert (broker.data_dir / "FORMAT").exists()


def test_who_may_see_and_drop_readers(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as broker:
        api = Management(broker.http_url)
        for name in ("management", "monitoring"):
            api.request("PUT", "users", name, body={"password": "secret", "tags": name})
        others = {
            name: Management(broker.http_url.replace("guest:guest", f"{name}:secret"))
            for name in ("management", "monitoring")
        }
        assert refused(others["management"], "GET", "readers") == 401
        assert others["monitoring"].request("GET", "readers") == []
        assert refused(others["monitoring"], "DELETE", "readers", "lake") == 401

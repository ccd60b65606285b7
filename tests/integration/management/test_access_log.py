"""The access log of the HTTP API has the lines that RabbitMQ 3.10.8 writes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conformance.http_api import HttpApi
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

_TIME = re.compile(r"\[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\]")


def test_each_request_has_a_line(tmp_path: Path) -> None:
    directory = tmp_path / "http"
    with LeveretProcess(tmp_path, settings={"management.http_log_dir": directory}) as broker:
        api = HttpApi(Management(broker.http_url))
        api.ask("GET", "whoami", headers={"User-Agent": "agent/1"})
        api.ask("GET", "whoami", user="nobody x")
        api.ask("GET", "overview", user="")
        sent = {"Referer": 'http://ref/"', "User-Agent": "a"}
        api.ask("PUT", "queues/%2F/a%20b?secret=1", {}, headers=sent)
        api.ask("GET", "auth/hash_password/secret")
    (file,) = directory.iterdir()
    assert re.fullmatch(r"access\.log\.\d{4}_\d\d_\d\d_\d\d", file.name)
    lines = file.read_text().splitlines()
    assert all(_TIME.search(line) for line in lines)
    shown = [_TIME.sub("TIME", line) for line in lines]
    assert shown[0].startswith('127.0.0.1 - guest TIME "GET /api/whoami HTTP/1.1" 200 ')
    assert shown[0].endswith(' "" "agent/1"')
    assert shown[1].startswith('127.0.0.1 - nobody%20x TIME "GET /api/whoami HTTP/1.1" 401 ')
    assert shown[2].startswith('127.0.0.1 - - TIME "GET /api/overview HTTP/1.1" 401 0 ')
    assert shown[3] == '127.0.0.1 - guest TIME "PUT /api/queues/%2F/a%20b HTTP/1.1" 201 0 "http://ref/\\"" "a"'
    assert "/api/auth/hash_password/******** " in shown[4]
    assert not [line for line in lines if "secret" in line]


def test_a_directory_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = {"management.http_log_dir": tmp_path / "file" / "http"}
    with LeveretProcess(tmp_path, settings=settings) as broker:
        for _ in range(3):
            assert Management(broker.http_url).request("GET", "whoami")["name"] == "guest"
        assert broker.log.read_text().count("the access log cannot be written to") == 1

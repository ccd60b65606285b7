"""rabbit-hole, the Go client of RabbitMQ's HTTP API: runs the module in `tests/integration/go`, on shovels."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

_MODULE = Path(__file__).parents[1] / "go"
_SECONDS = 600
#: What it prints with RabbitMQ 3.10.8, too: MANAGEMENT_URL names the API of one.
EXPECTED = """\
declared 201 Created
declared again 204 No Content
shovel x [amqp:///go] a [amqp:///go] b on-confirm 10 never true 1
listed 1 x
status x true dynamic running
refused Error 400 (bad_request): Validation failed

Must specify 'src-exchange' or 'src-queue'

deleted 204 No Content
deleted again 404 Not Found
gone Error 404 (Object Not Found): Not Found
"""


@pytest.mark.go
@pytest.mark.timeout(_SECONDS + 60)
def test_shovels(process: LeveretProcess, tmp_path: Path) -> None:
    url = os.environ.get("MANAGEMENT_URL", process.http_url)
    api = Management(url)
    api.request("PUT", "vhosts", "go")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    api.request("PUT", "permissions", "go", "guest", body=everything)
    program = tmp_path / "shovels"
    subprocess.run(["go", "build", "-o", program, "."], cwd=_MODULE, check=True, timeout=_SECONDS)
    ran = subprocess.run(
        [program, api.base, "guest", "guest", "go"], capture_output=True, text=True, check=False, timeout=_SECONDS
    )
    api.request("DELETE", "vhosts", "go")
    assert (ran.stdout, ran.stderr, ran.returncode) == (EXPECTED, "", 0)

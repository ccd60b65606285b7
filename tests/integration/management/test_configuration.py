"""What the API says of the configuration."""

from __future__ import annotations

from pathlib import Path

from broker.config.options import OPTIONS
from tests.integration.program import running
from tests.support.management import Management


def test_the_configuration_in_force(tmp_path: Path) -> None:
    arguments = ("--set", "default_pass=hidden", "--set", "heartbeat=17", "--set", "storage.sync=interval(100)")
    with running(tmp_path, *arguments) as program:
        url = program.http_url.replace("guest:guest", "guest:hidden")
        shown = Management(url).request("GET", "config", "effective")
    assert set(shown) == set(OPTIONS)
    assert (shown["heartbeat"], shown["storage.sync"]) == (17, "interval(100)")
    assert shown["tcp_listen_options.nodelay"] is True
    assert "hidden" not in shown.values()

"""Tests see the same environment, whoever calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_CODE: Final = """
import json, os, time
import tests.conftest
print(json.dumps([dict(os.environ), time.tzname]))
"""
_CALLERS: Final = {
    "AMQP_URL": "amqp://nowhere.invalid",
    "BENCH_PEER": "amqp://nowhere.invalid",
    "CELERY_BROKER_URL": "amqp://nowhere.invalid",
    "COLUMNS": "20",
    "ETCD_NAME": "else",
    "GIT_DIR": "/nowhere",
    "KUBERNETES_SERVICE_HOST": "nowhere.invalid",
    "LANG": "C",
    "LAVINMQ": "1",
    "LC_ALL": "C",
    "LDAPTLS_CACERT": "/nowhere",
    "LEVERET_PORT": "5672",
    "LEVERET_URL": "http://nowhere.invalid",
    "MAKEFLAGS": "-j2",
    "NOTIFY_SOCKET": "@nowhere",
    "PYICEBERG_CATALOG__DEFAULT__URI": "http://nowhere.invalid",
    "PYTEST_ADDOPTS": "--collect-only",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONWARNINGS": "error",
    "SPARK_HOME": "/nowhere",
    "TZ": "Asia/Kathmandu",
}


def _seen(**variables: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables that tests see, and the time zone."""
    needed = {name: os.environ[name] for name in ("PATH",)}
    environment, zone = json.loads(
        subprocess.check_output([sys.executable, "-c", _CODE], cwd=_ROOT, env=needed | variables, text=True)
    )
    return environment, zone


def test_what_the_caller_has_set_is_forgotten() -> None:
    bare = _seen()
    assert _seen(**_CALLERS) == bare
    assert {"HOME", "USER", "LANG", "TZ"} <= bare[0].keys()
    assert bare[1] == ["UTC", "UTC"]


def test_a_proxy_is_not_asked_for_loopback() -> None:
    environment, _ = _seen(http_proxy="http://nowhere.invalid", no_proxy="example.org,localhost")
    assert environment["http_proxy"] == "http://nowhere.invalid"
    assert environment["no_proxy"] == environment["NO_PROXY"] == "example.org,localhost,127.0.0.1,::1,[::1]"


def test_what_the_run_is_to_do_is_kept() -> None:
    chosen = {"LEVERET_COMPILE": "0", "BROKER_URL": "amqp://here", "KILL_ROUNDS": "3", "TMPDIR": "/tmp"}
    environment, _ = _seen(**chosen)
    assert chosen.items() <= environment.items()

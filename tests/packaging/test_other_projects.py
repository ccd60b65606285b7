"""Leveret installed into a project that has packages named as its folders are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from leveret.broker.version import VERSION
from tests.packaging.distributions import PURE, ROOMS, clean, dependencies, install, run

_OWN_TESTS = """
import analytics, broker, pika, policies, protocol, storage

def test_own_packages():
    assert [analytics.OWN, broker.OWN, policies.OWN] == ["analytics", "broker", "policies"]
    assert [protocol.OWN, storage.OWN] == ["protocol", "storage"]

def test_a_broker_beside_them(leveret_url):
    with pika.BlockingConnection(pika.URLParameters(leveret_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"here")
        assert channel.basic_get("q", auto_ack=True)[2] == b"here"

def test_by_the_public_names(leveret):
    from leveret import LeveretThread
    from leveret.testing import leveret_url

    assert isinstance(leveret, LeveretThread)
    assert leveret_url is not None
"""

_TYPED = """
from leveret import Leveret, LeveretThread, Levret, __version__

reveal_type(LeveretThread().url)
reveal_type(Leveret)
reveal_type(__version__)
LeveretThread(data_dir=1)
LeveretThread().start(1)
"""


_SHOVEL = """
import json, time, urllib.request
from base64 import b64encode
from leveret import LeveretThread

def ask(broker, method, path, body=None):
    where, login = broker.http_url.rpartition("@")[2], b64encode(b"guest:guest").decode()
    headers = {"Authorization": "Basic " + login, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"http://{where}/api/{path}", data, headers, method=method)
    with urllib.request.urlopen(asked) as answer:
        return json.loads(answer.read() or b"null")

with LeveretThread() as here, LeveretThread() as there:
    ask(there, "PUT", "queues/%2F/q", {"durable": True})
    message = {"properties": {}, "routing_key": "q", "payload": "here", "payload_encoding": "string"}
    ask(there, "POST", "exchanges/%2F/amq.default/publish", message)
    ends = {"src-uri": there.url, "src-queue": "q", "dest-uri": "amqp://", "dest-queue": "q"}
    ask(here, "PUT", "parameters/shovel/%2F/s", {"value": ends})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        (shovel,) = ask(here, "GET", "shovels")
        if shovel.get("reason") or shovel.get("forwarded"):
            break
        time.sleep(0.05)
    print(shovel["state"], shovel.get("reason") or shovel["forwarded"])
"""


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs' folder of an environment that has Leveret, its extra `analytics`, pytest, mypy and pika."""
    names = dict.fromkeys(["pytest", "mypy", "pika", *dependencies("leveret", {"analytics"})])
    for tool in ("pytest", "mypy"):
        names |= dict.fromkeys(dependencies(tool, set()))
    return install(wheel, tmp_path_factory.mktemp("environment"), names)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Somebody's project."""
    for name in ROOMS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f'OWN = "{name}"\n')
    (tmp_path / "test_project.py").write_text(_OWN_TESTS)
    (tmp_path / "typed.py").write_text(_TYPED)
    return tmp_path


def python(programs: Path, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the environment's Python in the project, which comes first in its path."""
    command = [str(programs / "python"), *arguments]
    return subprocess.run(command, cwd=project, env=clean(), capture_output=True, text=True, timeout=600, check=False)


def test_programs_run(programs: Path, project: Path) -> None:
    assert run(programs / "leveret", "--version", place=project) == f"leveret {VERSION} ({PURE})\n"
    assert run(programs / "leveretctl", "version", place=project) == f"{VERSION}\n"
    assert "leveret-analytics" in run(programs / "leveret-analytics", "--help", place=project)
    done = python(programs, project, "-m", "leveret", "--version")
    assert (done.stdout, done.stderr) == (f"leveret {VERSION} ({PURE})\n", "")


@pytest.mark.parametrize("mode", ["prepend", "append", "importlib"])
def test_fixtures_work(programs: Path, project: Path, mode: str) -> None:
    done = python(programs, project, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--import-mode={mode}")
    assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout + done.stderr


def test_type_checkers_see_types(programs: Path, project: Path) -> None:
    done = python(programs, project, "-m", "mypy", "--strict", "--cache-dir", str(project / ".cache"), "typed.py")
    lines = [line.partition(": ")[2] for line in done.stdout.splitlines()]
    assert 'Module "leveret" has no attribute "Levret"' in lines[0], done.stdout + done.stderr
    assert lines[1] == 'note: Revealed type is "str"'
    assert "leveret.broker.embedded.Leveret" in lines[2]
    assert lines[3] == 'note: Revealed type is "str"'
    assert '"LeveretThread" has incompatible type "int"' in lines[4]
    assert 'Too many arguments for "start" of "LeveretThread"' in lines[5]


def test_nothing_but_the_package_is_installed(programs: Path) -> None:
    (packages,) = programs.parent.glob("lib/python*/site-packages")
    assert not [name for name in (*ROOMS, "tests", "docker") if (packages / name).exists()]


@pytest.mark.parametrize(
    ("extras", "said"),
    [
        ({"shovel"}, "running 1\n"),
        (set(), "starting <<\"shovels to and from other brokers need aiormq: pip install 'leveret[shovel]'\">>\n"),
    ],
    ids=["extra", "none"],
)
def test_a_shovel_needs_its_extra(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory, project: Path, extras: set[str], said: str
) -> None:
    environment = install(wheel, tmp_path_factory.mktemp("environment"), dependencies("leveret", extras))
    done = python(environment, project, "-c", _SHOVEL)
    assert done.stdout == said, done.stderr

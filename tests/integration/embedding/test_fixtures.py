"""The fixtures in somebody's test suite, run by pytest as its users run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_DEADLINE = 180

_SUITE = """
import unittest
import pika, pytest
from leveret import clean_broker

URLS = set()

def declare(url, name="q"):
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        return connection.channel().queue_declare(name, passive=False).method.message_count

def exists(url, name="q"):
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        try:
            connection.channel().queue_declare(name, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        return True

@pytest.mark.parametrize("number", range(10))
def test_clean(leveret, leveret_url, number):
    URLS.add(leveret_url)
    assert len(URLS) == 1 and leveret.url == leveret_url
    assert not exists(leveret_url)
    declare(leveret_url)

def test_shared(leveret_session, leveret_session_url, leveret_url):
    assert leveret_session.url == leveret_session_url != leveret_url
    declare(leveret_session_url)

def test_still_shared(leveret_session_url, leveret_url):
    assert exists(leveret_session_url) and not exists(leveret_url)

def test_stopped(leveret):
    leveret.stop()

def test_after_it_was_stopped(leveret_url):
    assert not exists(leveret_url)

@pytest.mark.leveret(options={"channel_max": 5, "heartbeat": 7}, definitions="queues.json")
class TestMarked:
    @pytest.mark.leveret(options={"channel_max": 6})
    def test_the_closest_counts(self, leveret_url):
        with pika.BlockingConnection(pika.URLParameters(leveret_url)) as connection:
            assert (connection._impl.params.channel_max, connection._impl.params.heartbeat) == (6, 7)
        assert exists(leveret_url, "defined")

@pytest.mark.parametrize("most", [pytest.param(3, marks=pytest.mark.leveret(options={"channel_max": 3}))])
def test_parametrised(leveret_url, most):
    with pika.BlockingConnection(pika.URLParameters(leveret_url)) as connection:
        assert connection._impl.params.channel_max == most

def test_not_marked(leveret_url):
    assert not exists(leveret_url, "defined")

class TestUnittest(unittest.TestCase):
    def setUp(self):
        self.broker = self.enterContext(clean_broker())

    def test_one(self):
        assert not exists(self.broker.url)
        declare(self.broker.url)

    def test_two(self):
        self.test_one()
"""
_QUEUES = '{"queues": [{"name": "defined", "vhost": "/", "durable": true, "arguments": {}}]}'


def run(folder: Path, suite: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a suite, in a folder for its temporary files."""
    (folder / "test_suite.py").write_text(suite)
    (folder / "queues.json").write_text(_QUEUES)
    temporary = folder / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "-W", "error"]
    # Without it pytest-asyncio warns.
    command += ["-o", "asyncio_default_fixture_loop_scope=function"]
    return subprocess.run(
        [*command, *arguments, "test_suite.py"],
        cwd=folder,
        env={"TMPDIR": str(temporary), "LEVERET_COMPILE": "0", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=False,
    )


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_suite(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    # What is shared in a session is shared in a worker.
    suite = _SUITE if not arguments else _SUITE.replace("exists(leveret_session_url) and ", "")
    ran = run(tmp_path, suite, *arguments)
    assert (ran.returncode, "19 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr
    assert list((tmp_path / "tmp").glob("leveret-*")) == [], "the data directories are removed"


#: Arguments of the marker, and what is said of them.
_WRONG = [
    ("5", "the marker leveret takes options= and definitions=, not positional arguments"),
    ("option={}", "the marker leveret takes options= and definitions=, not option"),
    ("options={'hartbeat': 1}", "unknown option 'hartbeat'; did you mean 'heartbeat'"),
    ("definitions='missing.json'", "cannot read .*missing.json: No such file"),
    ("definitions={'queues': [{'name': 'q', 'vhost': 'x'}]}", "virtual host|vhost"),
]


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    """And the next test has a broker."""
    tests = (
        f"@pytest.mark.leveret({arguments})\ndef test_wrong_{number}(leveret): pass\n"
        f"def test_right_{number}(leveret_url): pass\n"
        for number, (arguments, _) in enumerate(_WRONG)
    )
    ran = run(tmp_path, f"import pytest\n{''.join(tests)}")
    assert f"{len(_WRONG)} passed, {len(_WRONG)} errors" in ran.stdout, ran.stdout
    said = re.split(r"ERROR at setup of test_wrong_\d", ran.stdout)[1:]
    for text, (_, expected) in zip(said, _WRONG, strict=True):
        assert re.search(expected, text), text

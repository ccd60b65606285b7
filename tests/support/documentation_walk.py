"""Does what the pages of the documentation show, one step after the other, as a reader would."""

from __future__ import annotations

import io
import re
import shlex
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from leveret.analytics.archiver import main as archive
from tests.support.documentation import PAGES, fenced
from tests.support.leveretctl import Leveretctl

_TIMEOUT: Final = 180
#: Lines that begin so are run by other tests, or change the machine.
_ELSEWHERE: Final = re.compile(
    r"make |docker |env (?:LEVERET_COMPILE|PYSPARK_DRIVER_PYTHON)=|KILL_ROUNDS=|protoc |export PATH=|python -m |"
    r"\.venv/bin/(pip|leveret|spark-submit) |\.venv/bin/leveret-analytics (?!archive )|"
    # Programs are run where they are printed. The keys are written by one with Spark.
    r"\.venv/bin/python |leveretctl delete_messages "
)
#: Programs with these words are run by tests with Spark, by those of the recipes, or as tests of their own.
_OTHERS_RUN: Final = re.compile(
    r"\bspark\b|\.write\b|def test_|LeveretThread|clean_broker|\"lake\"|deltalake|pyiceberg"
)
_PRINTS: Final = re.compile(
    r"\s*(?:Saved as `\w+\.py`, )?`\.venv/bin/python \w+\.py` prints (`[^`]+`(?: and then `[^`]+`)*)"
)
#: How many messages a page publishes and gets, and how many are enough here.
_NUMBERS: Final = {"range(100000)": "range(1000)", "range(3000)": "range(30)"}


class Step(NamedTuple):
    """Something to do."""

    kind: str
    text: str
    printed: str | None = None


def steps_of(page: str) -> Iterator[Step]:
    """Yield what is to be done on a page, in order; what other tests run is left out."""
    for language, content, after in fenced(page):
        if language == "python" and not _OTHERS_RUN.search(content):
            said = _PRINTS.match(after)
            printed = None if said is None else "".join(f"{each}\n" for each in re.findall("`([^`]+)`", said[1]))
            yield Step("program", content, printed)
        elif language in ("sh", "console"):
            for line in content.replace("\\\n", " ").splitlines():
                shown = line.removeprefix("$ ")
                if not _ELSEWHERE.match(shown):
                    yield Step("line", shown)


#: Pages with something to do, in the order of the front page.
WALKED: Final = [
    page for page in dict.fromkeys(re.findall(r"\]\((docs/[\w-]+\.md)\)", PAGES["README.md"])) if any(steps_of(page))
]


class Walk:
    """A reader with a broker."""

    def __init__(self, amqp: str, management: str, **others: str) -> None:
        self._amqp, self._management = amqp, management
        self._url = f"http://guest:guest@{management}"

    def read(self, page: str) -> str:
        """Do all steps of a page; return a line that says how many there were of each kind."""
        began, counts = time.monotonic(), Counter[str]()
        for step in steps_of(page):
            counts[step.kind] += 1
            if step.kind == "program":
                self._run(step)
            else:
                self.do(step.text)
        return f"{page}: {counts['program']} programs, {counts['line']} commands, {time.monotonic() - began:.1f} s"

    def _run(self, step: Step) -> None:
        source = step.text.replace("127.0.0.1:5672", self._amqp)
        for shown, enough in _NUMBERS.items():
            source = source.replace(shown, enough)
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(source, step.text, "exec"), {"__name__": "__main__"})
        assert step.printed in (None, out.getvalue()), step.text

    def do(self, line: str) -> None:
        """Do what a line of a shell says."""
        shown = re.sub("http://guest:guest@(localhost|old):15672", self._url, line)
        program, *words = shlex.split(shown, comments=True)
        if program == "export":
            assert words == [f"LEVERET_URL={self._url}"], line
        elif program == "curl":
            _do_as_curl(words, self._management)
        elif program == ".venv/bin/leveret-analytics":
            # Otherwise it would go on.
            assert archive([*words[1:], "--once"]) == 0, line
        else:
            assert program == "leveretctl", line
            result = Leveretctl(self._url)(*words)
            assert (result.status, result.err) == (0, ""), (line, result)
            # What the command says of a policy that does nothing, or loses messages.
            assert not re.search("in force on 0 of|does not exist", result.out), (line, result.out)


def _do_as_curl(words: list[str], address: str) -> None:
    """Send the request of a curl command, to another address."""
    options: dict[str, str] = {}
    url = ""
    given = iter(words)
    for word in given:
        if word.startswith("-"):
            options[word] = next(given)
        else:
            url = word
    assert urlsplit(url).netloc == "127.0.0.1:15672"
    user, _, password = options.pop("-u").partition(":")
    passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
    passwords.add_password(None, f"http://{address}", user, password, is_authenticated=True)
    name, _, value = options.pop("-H").partition(": ")
    request = urllib.request.Request(
        url.replace("127.0.0.1:15672", address),
        method=options.pop("-X"),
        data=options.pop("-d").encode(),
        headers={name: value},
    )
    assert options == {}
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))
    with opener.open(request, timeout=_TIMEOUT) as response:
        assert response.status in (201, 204)

"""Rule 46.1: what rabbitmqctl and rabbitmq-diagnostics print: `transcripts/` holds what those of 3.10.8 printed.

In a transcript `$` begins a command, `<<<` what it reads, `[stderr]` a line of standard error, `[exit …]` ends it.
The program's name and its general options are ours; bold letters, times and what differs for a reason are left out or
changed, as said at the top of a transcript. Error texts have no Erlang terms: `"x"` for `<<"x">>`, and
what is wrong with JSON.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.conftest import Broker
from tests.conformance.timing import in_time
from tests.support.leveretctl import CommandResult, Leveretctl
from tests.support.management import Management

DIRECTORY: Final = Path(__file__).parent / "transcripts"
TRANSCRIPTS: Final = sorted(path.stem for path in DIRECTORY.glob("*.txt"))
INPUT: Final = " <<< "
#: A command that looks at all virtual hosts, also at those that other tests add or delete at that moment.
LOOKS_AT_ALL: Final = "check_virtual_hosts"


class Names:
    """What a transcript's placeholders stand for."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def fill(self, text: str) -> str:
        """Put the values in."""
        for name, value in self._values.items():
            text = text.replace(f"«{name}»", value)
        return text


@pytest.fixture
def ctl(broker: Broker) -> Leveretctl:
    return Leveretctl(broker.http_url)


@pytest.fixture
def names(request: pytest.FixtureRequest, ctl: Leveretctl, management: Management) -> Iterator[Names]:
    """The names of a transcript's virtual host and user, which exist unless it is about making them."""
    about = request.getfixturevalue("transcript")
    vhost, user = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("vhost", "user"))
    with ExitStack() as stack:
        stack.callback(ctl, "delete_vhost", vhost)
        stack.callback(ctl, "delete_user", user)
        if about != "vhosts":
            ctl.output("add_vhost", vhost)
        if about != "users":
            ctl.output("add_user", user, "secret")
        yield Names({"vhost": vhost, "user": user, "node": management.request("GET", "overview")["node"]})


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Give the commands of a transcript with what comes of them."""
    for block in f"\n{text}".split("\n$ ")[1:]:
        command, _, printed = block.partition("\n")
        yield command, printed.rstrip("\n")


def written(ran: CommandResult) -> str:
    """Write what a command printed as a transcript has it."""
    lines = ran.out.removesuffix("\n").split("\n") if ran.out else []
    lines += [f"[stderr] {line}".rstrip() for line in ran.err.removesuffix("\n").split("\n") if ran.err]
    return "\n".join([*lines, f"[exit {ran.status}]"])


def played(ctl: Leveretctl, names: Names, command: str, expected: str) -> str:
    """Return what a command prints; one that looks at all virtual hosts is tried again if that is not expected."""
    found = ""

    def is_as_expected() -> bool:
        nonlocal found
        found = play(ctl, names, command)
        return trimmed(found) == trimmed(expected) or not command.startswith(LOOKS_AT_ALL)

    in_time(is_as_expected)
    return found


def play(ctl: Leveretctl, names: Names, command: str) -> str:
    line, _, stdin = names.fill(command).partition(INPUT)
    return written(ctl(*shlex.split(line), stdin=f"{stdin}\n" if stdin else ""))


@pytest.mark.parametrize("transcript", TRANSCRIPTS)
def test_46_1_transcript(ctl: Leveretctl, names: Names, transcript: str) -> None:
    text = (DIRECTORY / f"{transcript}.txt").read_text("utf-8")
    steps = [(command, names.fill(expected)) for command, expected in commands(text)]
    assert steps
    differences = []
    for command, expected in steps:
        found = played(ctl, names, command, expected)
        if trimmed(found) != trimmed(expected):
            differences.append(f"$ {names.fill(command)}\n--- expected\n{expected}\n--- found\n{found}")
    assert not differences, "\n\n".join(differences)


def trimmed(printed: str) -> str:
    """Leave out blanks at the ends of lines, which editors may."""
    return "\n".join(line.rstrip(" ") for line in printed.split("\n"))

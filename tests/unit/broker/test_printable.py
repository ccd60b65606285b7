from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from leveret.broker import logs
from leveret.broker.printable import escape_line, escape_multiline

#: A control character of each kind.
CONTROLS = "\0\a\x0b\x0c\r\x1b\x1c\x7f\x85\x9b\u061c\u200f\u2028\u2029\u202e\u2066\udcff"


@pytest.mark.parametrize("control", [*CONTROLS, "\n", "\t"])
def test_control_characters_are_written(control: str) -> None:
    shown = escape_line(f"a{control}b")
    assert shown.isprintable()
    assert shown.encode().decode("unicode_escape") == f"a{control}b"


def test_lines_may_stay() -> None:
    assert escape_multiline("a\n\tb\x1b[31m\r") == "a\n\tb\\x1b[31m\\r"


@pytest.mark.parametrize("text", ["", "plain", "ä 兎 🐇", "👩\u200d🚀", "a\u00a0b", "soft\u00adhyphen"])
def test_what_is_no_control_character_stays(text: str) -> None:
    assert escape_line(text) == escape_multiline(text) == text


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What is logged."""
    stream, root = io.StringIO(), logging.getLogger()
    before = root.handlers[:], root.level
    monkeypatch.setattr("sys.stderr", stream)
    logs.configure("info", logs.open_handlers("plaintext", None, console=True))
    yield stream
    root.handlers[:] = before[0]
    root.setLevel(before[1])


def test_a_line_of_the_log_stays_one(written: io.StringIO) -> None:
    logging.getLogger("test").error("closing %s", "a\n2026-01-01 [error] forged\x1b[2K")
    (line,) = written.getvalue().splitlines()
    assert line.endswith(r"closing a\n2026-01-01 [error] forged\x1b[2K")


def test_a_traceback_cannot_forge_one_either(written: io.StringIO) -> None:
    try:
        raise ValueError("a\n2026-01-01 [error] forged\x1b[2K")
    except ValueError:
        logging.getLogger("test").exception("a fault")
    first, *others = written.getvalue().splitlines()
    assert first.endswith("a fault")
    assert all(line.startswith("  ") for line in others)
    assert "\x1b" not in written.getvalue()

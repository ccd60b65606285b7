"""The progress bar."""

from __future__ import annotations

import io

import pytest

from leveret.broker.management.cli.progress import ProgressLine, render_bar


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal() -> None:
    stream = Terminal()
    with ProgressLine("Moving", 10, stream=stream) as progress:
        assert progress.visible
    assert stream.getvalue() == f"\r\x1b[K{render_bar('Moving', 0, 10)}\r\x1b[K"


def test_elsewhere_and_when_silent() -> None:
    for stream, silent in ((io.StringIO(), False), (Terminal(), True)):
        with ProgressLine("Moving", 10, stream=stream, silent=silent) as progress:
            progress.update(5)
            assert not progress.visible
        assert stream.getvalue() == ""


def test_it_is_removed_also_after_a_failure() -> None:
    stream = Terminal()
    with pytest.raises(KeyError), ProgressLine("Moving", 10, stream=stream):
        raise KeyError
    assert stream.getvalue().endswith("\r\x1b[K")


def test_it_paints_seldom() -> None:
    stream = Terminal()
    with ProgressLine("Moving", 10_000, stream=stream) as progress:
        for done in range(10_000):
            progress.update(done)
    assert stream.getvalue().count("Moving") < 100


@pytest.mark.parametrize(
    ("done", "total", "expected"),
    [
        (0, 4, f"x [{'.' * 30}]   0% 0/4"),
        (1, 4, f"x [{'#' * 7}{'.' * 23}]  25% 1/4"),
        (4, 4, f"x [{'#' * 30}] 100% 4/4"),
        (6, 4, f"x [{'#' * 30}] 100% 6/6"),
        (0, 0, f"x [{'#' * 30}] 100% 0/0"),
    ],
)
def test_bar(done: int, total: int, expected: str) -> None:
    assert render_bar("x", done, total) == expected

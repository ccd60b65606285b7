from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret import compilation
from tests.bench.forms import FormProcess, main
from tests.bench.in_flight import BenchError
from tests.bench.in_process import SHAPES, cpu_of_message, session
from tests.bench.scenarios import Scenario

_MESSAGES = 5_000
#: Compiled modules may take this much of what pure Python takes. Where there is much to decode they take far less.
_BOUND = 1.1
#: What disturbs a round makes it slower: the fastest one tells what a form takes. A busy machine needs more rounds.
_LEAST_ROUNDS, _MOST_ROUNDS = 5, 60


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_message_is_counted(shape: Scenario) -> None:
    run = session(shape)
    for count in (1_234, 100):
        assert cpu_of_message(run, count) > 0


@pytest.fixture(scope="module")
def forms() -> Iterator[tuple[FormProcess, FormProcess]]:
    if compilation.form() != "compiled":
        pytest.skip("leveret is not compiled here")
    with FormProcess("1") as compiled, FormProcess("0") as pure:
        assert (compiled.form, pure.form) == ("compiled", "pure Python")
        yield compiled, pure


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_compiled_modules_are_no_slower_than_pure_python(
    forms: tuple[FormProcess, FormProcess], shape: Scenario
) -> None:
    lowest = [float("inf"), float("inf")]
    for number in range(1, _MOST_ROUNDS + 1):
        lowest = [min(low, form.cpu_of_message(shape, _MESSAGES)) for low, form in zip(lowest, forms, strict=True)]
        if number >= _LEAST_ROUNDS and lowest[0] <= _BOUND * lowest[1]:
            break
    assert lowest[0] <= _BOUND * lowest[1], f"µs a message, compiled and pure: {lowest}"


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--scenario", "task", "--runs", "2", "--messages", "500", "--json", "--results", str(tmp_path)]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    (scenario,) = found["scenarios"]
    expected = {"pure Python"} | ({"Leveret, compiled"} if compilation.form() == "compiled" else set())
    assert set(scenario["brokers"]) == expected
    assert all(len(each["runs"]) == 2 for each in scenario["brokers"].values())
    (kept,) = tmp_path.iterdir()
    assert json.loads(kept.read_text()) == found


def test_a_process_that_ends_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with FormProcess("0") as process, pytest.raises(BenchError, match="ended with status 1"):
        process.cpu_of_message(Scenario("unknown", "", 16, 1), 1)
    assert "KeyError: 'unknown'" in capfd.readouterr().err

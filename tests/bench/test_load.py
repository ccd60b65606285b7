"""The load of the benchmarks counts every message, and notices what is not its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret import compilation
from tests.bench.brokers import Broker, fresh_leveret
from tests.bench.forms import FormProcess
from tests.bench.in_process import SHAPES, cpu_of_message, session
from tests.bench.measurement import Extent, measure
from tests.bench.scenarios import SCENARIOS, SIZES, Scenario

TINY = Extent(SIZES["tiny"])
#: Compiled modules may take this much of what pure Python takes. Where there is much to decode they take far less.
_BOUND = 1.1
#: What disturbs a round makes it slower: the fastest one tells what a form takes. A busy machine needs more rounds.
_LEAST_ROUNDS, _MOST_ROUNDS = 5, 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with fresh_leveret(tls=True) as started:
        yield started


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_message_is_counted(broker: Broker, scenario: Scenario) -> None:
    run = measure(scenario, broker, TINY)
    assert run.messages == TINY.publishes(scenario) * scenario.copies
    # A full queue that refuses has nothing else to do.
    assert run.refused == (run.messages if scenario.refuses else 0)
    measures = run.measures
    assert measures.messages_per_second > 0
    assert measures.server_cpu_us is not None
    assert measures.server_cpu_us > 0
    if scenario.kind == "flow":
        assert measures.p50_ms is not None
        assert measures.p99_ms is not None
        assert 0 < measures.p50_ms <= measures.p99_ms


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_message_is_counted_without_sockets(shape: Scenario) -> None:
    assert cpu_of_message(session(shape), 1_234) > 0


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
        lowest = [min(low, form.cpu_of_message(shape, 5_000)) for low, form in zip(lowest, forms, strict=True)]
        if number >= _LEAST_ROUNDS and lowest[0] <= _BOUND * lowest[1]:
            break
    assert lowest[0] <= _BOUND * lowest[1], f"µs a message, compiled and pure: {lowest}"

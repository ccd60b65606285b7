"""The load of the benchmarks counts every message, and notices what is not its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pamqp import commands

from leveret import compilation
from tests.bench.brokers import Broker, fresh_leveret
from tests.bench.forms import FormProcess
from tests.bench.frames import SingleAcks, ack
from tests.bench.in_flight import BenchError
from tests.bench.in_process import SHAPES, cpu_of_message, session
from tests.bench.load import Load
from tests.bench.measurement import Extent, measure
from tests.bench.scenarios import SCENARIOS, SIZES, Scenario
from tests.support.wire import Connection, method_frame

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


def test_messages_of_somebody_else_are_noticed(broker: Broker) -> None:
    scenario = Scenario("filled", "", 16, 1, kind="publish")
    with Load(broker.url, scenario, window=100) as load:
        load.fill(10)
        with Connection(broker.url) as connection:
            connection.channel().queue_purge(load.queues[0])
        with pytest.raises(BenchError, match=r"hold .* expected"):
            load.run(10, patience=0.1)


def test_answers_of_somebody_else_are_noticed(broker: Broker) -> None:
    for window in (0, 1):
        scenario = Scenario("disturbed", "", 16, 1, "round-trip", queues=3, ack_every=1, confirm_window=window)
        with Load(broker.url, scenario, window=100) as load:
            assert load.run(7).messages == 7
            with Connection(broker.url) as connection:
                channel = connection.channel()
                channel.publish("", load.queues[1], b"0123456789abcdeX")
                channel.sync(load.queues[1])
            with pytest.raises(BenchError, match=r"is not what it has to be|more than the answer came"):
                load.run(7)


def test_a_broker_without_tls_is_left_out(broker: Broker) -> None:
    (scenario,) = [each for each in SCENARIOS if each.name == "16B-tls"]
    with pytest.raises(BenchError, match="has no encrypted listener"):
        measure(scenario, replace(broker, tls_url=None), TINY)


def test_acks_are_what_the_method_encodes_to() -> None:
    for multiple in (False, True):
        assert ack(2**40 + 7, multiple=multiple) == method_frame(
            1, commands.Basic.Ack, delivery_tag=2**40 + 7, multiple=multiple
        )
    acks = SingleAcks()
    for first, last in ((1, 3), (65_530, 65_540), (131_000, 131_080), (2**32 - 3, 2**32 - 1)):
        assert acks.frames(first, last) == b"".join(ack(tag, multiple=False) for tag in range(first, last + 1))


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


def test_a_process_that_ends_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with FormProcess("0") as process, pytest.raises(BenchError, match="ended with status 1"):
        process.cpu_of_message(Scenario("unknown", "", 16, 1), 1)
    assert "KeyError: 'unknown'" in capfd.readouterr().err

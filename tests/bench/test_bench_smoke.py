from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pamqp import commands

from tests.bench.__main__ import main
from tests.bench.accounting import listening_pid
from tests.bench.brokers import PEER_VARIABLE, Broker, fresh_leveret, given
from tests.bench.frames import SingleAcks, ack
from tests.bench.in_flight import BenchError
from tests.bench.lavinmq import LAVINMQ_VARIABLE
from tests.bench.load import Load
from tests.bench.measurement import Extent, Measures, Run, combined, measure
from tests.bench.report import COLUMNS, Result, document, table
from tests.bench.scenarios import SCENARIOS, SIZES, Scenario
from tests.support.wire import Connection, method_frame, parse_url

TINY = Extent(SIZES["tiny"])


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
    assert measures.load_cpu_us is not None
    assert measures.load_cpu_us > 0
    assert measures.server_cpu_us is not None
    assert measures.server_cpu_us > 0
    assert measures.peak_rss_mib is not None
    assert measures.peak_rss_mib > 1
    if scenario.kind == "flow":
        assert measures.p50_ms is not None
        assert measures.p99_ms is not None
        assert 0 < measures.p50_ms <= measures.p99_ms


def test_durable_persistent_messages_of_several_kinds(broker: Broker) -> None:
    properties = tuple({"priority": priority, "content_type": "text/plain"} for priority in range(10))
    scenario = Scenario("mixed", "", 64, 1, durable=True, persistent=True, properties=properties, confirm_window=50)
    assert measure(scenario, broker, Extent(SIZES["tiny"], messages=1_234)).messages == 1_234


def test_messages_of_somebody_else_are_noticed(broker: Broker) -> None:
    scenario = Scenario("filled", "", 16, 1, kind="publish")
    with Load(broker.url, scenario, window=100) as load:
        load.fill(10)
        with Connection(broker.url) as connection:
            connection.channel().queue_purge(load.queues[0])
        with pytest.raises(BenchError, match=r"hold .* expected"):
            load.run(10, patience=0.1)


def test_queues_are_gone_afterwards(broker: Broker) -> None:
    with Load(broker.url, Scenario("fanned", "", 16, 1, queues=3, exchange="fanout"), window=100) as load:
        queues = load.queues
        assert load.run(100).messages == 300
    with Connection(broker.url) as connection:
        for queue in queues:
            channel = connection.channel()
            with channel.expect_channel_close(404, f"NOT_FOUND - no queue '{queue}' in vhost '/'"):
                channel.queue_declare(queue, passive=True)


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


def test_an_ack_is_what_the_method_encodes_to() -> None:
    for multiple in (False, True):
        assert ack(2**40 + 7, multiple=multiple) == method_frame(
            1, commands.Basic.Ack, delivery_tag=2**40 + 7, multiple=multiple
        )


def test_acks_of_a_range_are_those_of_its_tags() -> None:
    acks = SingleAcks()
    for first, last in ((1, 3), (65_530, 65_540), (131_000, 131_080), (2**32 - 3, 2**32 - 1)):
        assert acks.frames(first, last) == b"".join(ack(tag, multiple=False) for tag in range(first, last + 1))


def test_process_of_a_given_broker_is_found(broker: Broker) -> None:
    assert listening_pid(parse_url(broker.url).port) is not None
    found = given(broker.url)
    assert found.name == broker.name
    assert found.account is not None
    assert found.account.peak_rss_bytes() > 2**20


def run_with(number: float) -> Run:
    return Run(100, 0, Measures(1000 * number, number, None, number, number, number))


def result() -> Result:
    runs = {"Leveret 1": [run_with(each) for each in (1, 9, 2)], "Other 2": [run_with(each) for each in (4, 4, 50)]}
    return Result(SCENARIOS[0], runs)


def test_median_is_taken_measure_by_measure() -> None:
    runs = [run_with(each) for each in (1, 9, 2)]
    assert combined(runs) == Measures(2000, 2, None, 2, 2, 2)
    assert combined(runs, max) == Measures(9000, 9, None, 9, 9, 9)


def test_table_has_a_line_for_each_broker_and_the_ratio() -> None:
    head, leveret, other, ratio = table([result()]).splitlines()
    assert [title for title in (column.title for column in COLUMNS) if title not in head] == []
    assert leveret.split() == [
        SCENARIOS[0].name,
        "Leveret",
        "1",
        "2,000",
        "2.00",
        "–",
        "2.00",
        "2",
        "2.00",
        "1.00–9.00",
    ]
    assert other.split() == ["Other", "2", "4,000", "4.00", "–", "4.00", "4", "4.00", "4.00–50.00"]
    assert ratio.split() == ["ratio", "0.500", "0.500", "–", "0.500", "0.500", "0.500"]


def test_json_has_medians_runs_and_ratios() -> None:
    (scenario,) = json.loads(json.dumps(document([result()])))["scenarios"]
    assert scenario["name"] == SCENARIOS[0].name
    assert scenario["brokers"]["Leveret 1"]["median"]["messages_per_second"] == 2000
    assert [run["measures"]["server_cpu_us"] for run in scenario["brokers"]["Other 2"]["runs"]] == [4, 4, 50]
    assert scenario["brokers"]["Leveret 1"]["lowest"]["server_cpu_us"] == 1
    assert scenario["brokers"]["Leveret 1"]["highest"]["server_cpu_us"] == 9
    assert scenario["ratios"]["Other 2"]["server_cpu_us"] == 0.5
    assert scenario["ratios"]["Other 2"]["p50_ms"] is None


def test_each_peer_has_its_ratio() -> None:
    runs = {name: [run_with(number)] for name, number in (("Leveret 1", 1), ("Other 2", 4), ("Third 3", 5))}
    rows = [line.split()[0] for line in table([Result(SCENARIOS[0], runs)]).splitlines()[2:]]
    assert rows == ["Other", "ratio", "Third", "ratio"]
    del runs["Leveret 1"]
    assert Result(SCENARIOS[0], runs).ratios == {}


def test_a_lavinmq_that_does_not_start_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(PEER_VARIABLE, raising=False)
    for program, text in (("/nowhere/lavinmq", "No such file or directory"), ("/bin/false", "LavinMQ did not start")):
        monkeypatch.setenv(LAVINMQ_VARIABLE, program)
        assert main(["--size", "tiny", "--only", "peer"]) == 1
        assert text in capsys.readouterr().err


def test_command_measures_a_given_peer(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PEER_VARIABLE, broker.url)
    arguments = ["--size", "tiny", "--messages", "500", "--runs", "2", "--only", "peer", "--json"]
    assert main([*arguments, "--scenario", "1kB-confirms"]) == 0
    printed = capsys.readouterr()
    (scenario,) = json.loads(printed.out)["scenarios"]
    assert [run["messages"] for run in scenario["brokers"][broker.name]["runs"]] == [500, 500]
    assert printed.err.count("1kB-confirms  run ") == 2


def test_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [each.name for each in SCENARIOS]


def test_broker_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unused_tcp_port: int
) -> None:
    monkeypatch.setenv(PEER_VARIABLE, f"amqp://127.0.0.1:{unused_tcp_port}")
    assert main(["--size", "tiny", "--only", "peer"]) == 1
    assert "bench: " in capsys.readouterr().err

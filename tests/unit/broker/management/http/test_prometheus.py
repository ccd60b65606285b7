"""Metrics in cases that real clients cannot create: objects that end while they are counted, and many queues."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from pamqp import commands
from prometheus_client.parser import text_string_to_metric_families

from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.config.options import Settings
from leveret.broker.core.node import Node
from leveret.broker.core.stats.census import CounterTotals
from leveret.broker.management.http.access import Access
from leveret.broker.management.http.controller import RequestContext
from leveret.broker.management.http.prometheus.broker_metrics import alarm_families, node_families
from leveret.broker.management.http.prometheus.metrics_controller import Exposition, Totals
from leveret.broker.management.http.prometheus.objects import FAMILIES, counter, gauge, single
from leveret.broker.operations.jobs.runner import Jobs
from leveret.broker.shovels.shovels import Shovels
from leveret.storage.clock import Clock
from tests.support.memory_broker import MemoryBroker, MemoryClient, publish

QUEUES = 1500
QUEUE_FAMILIES = [family for family in FAMILIES if family.name in ("queue_coarse_metrics", "queue_metrics")]


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def client(broker: MemoryBroker) -> MemoryClient:
    return broker.open(channels=1)


def context(broker: MemoryBroker) -> RequestContext:
    access = Access(AuthBackends(broker.accounts), broker.broker)
    jobs = Jobs(broker.broker, broker.accounts)
    shovels = Shovels(broker.broker, AuthBackends(broker.accounts), 0, {})
    return RequestContext(
        broker.broker, broker.accounts, Node(Clock()), Settings(), access, lambda: None, jobs, shovels
    )


def fill(client: MemoryClient, name: str, messages: int) -> None:
    client.call(1, commands.Queue.Declare, queue=name)
    client.send(*(publish(1, name, b"body") for _ in range(messages)))


async def sums(totals: Totals) -> Mapping[str, float]:
    found = await totals.of_objects(await totals.count())
    return {sample.name: sample.value for family in found for sample in family.samples if not sample.labels}


def test_object_that_ends_while_counting_is_counted_once(broker: MemoryBroker, client: MemoryClient) -> None:
    fill(client, "a", 3)
    fill(client, "b", 4)
    counted = CounterTotals(broker.broker)
    steps = counted.steps()
    next(steps)
    client.call(1, commands.Queue.Delete, queue="a")
    client.call(1, commands.Queue.Delete, queue="b")
    client.abort()
    for _ in steps:
        pass
    again = CounterTotals(broker.broker)
    for _ in again.steps():
        pass
    assert counted.all_queues.published == again.all_queues.published == 7
    assert counted.channels.publish == again.channels.publish == 7


async def test_counters_never_decrease(broker: MemoryBroker, client: MemoryClient) -> None:
    fill(client, "q", 2)
    totals = Totals(broker.broker)
    before = await sums(totals)
    connection = next(iter(broker.broker.connections))
    connection.output.counters.send_oct -= 1
    after = await sums(totals)
    assert before["rabbitmq_connection_outgoing_bytes_total"] == after["rabbitmq_connection_outgoing_bytes_total"] > 0
    client.call(1, commands.Queue.Purge, queue="q")
    assert (await sums(totals))["rabbitmq_queue_messages"] == 0, "a gauge may"


async def test_many_queues_do_not_block_the_event_loop(broker: MemoryBroker, client: MemoryClient) -> None:
    for number in range(QUEUES):
        client.call(1, commands.Queue.Declare, queue=f"q{number}")
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count_turns())
    exposition = Exposition("")
    text = b""
    for family in QUEUE_FAMILIES:
        text += b"".join([piece async for piece in exposition.objects(family, broker.broker)])
    task.cancel()
    # A slice takes 3 ms; all samples take much longer than these slices.
    assert turns > 10
    families = list(text_string_to_metric_families(text.decode()))
    assert len({family.name for family in families}) == len(families), "a metric is in pieces"
    assert {len(family.samples) for family in families} == {QUEUES}


async def test_names_are_escaped(broker: MemoryBroker, client: MemoryClient) -> None:
    name = 'q"# TYPE x\\nü'
    client.call(1, commands.Queue.Declare, queue=name)
    exposition = Exposition("")
    family = QUEUE_FAMILIES[0]
    text = b"".join([piece async for piece in exposition.objects(family, broker.broker)])
    found = [
        sample.labels["queue"] for each in text_string_to_metric_families(text.decode()) for sample in each.samples
    ]
    assert found == [name] * len(family.metrics)


async def test_deleted_queue_is_skipped(broker: MemoryBroker, client: MemoryClient) -> None:
    fill(client, "q", 1)
    queue = broker.vhost.queues["q"]
    client.call(1, commands.Queue.Delete, queue="q")
    for family in QUEUE_FAMILIES:
        assert [metric.samples for metric in family.families([queue])] == [[] for _ in family.metrics]


@pytest.mark.parametrize(
    ("accept", "end"),
    [
        ("", b""),
        ("text/plain", b""),
        ("application/openmetrics-text", b"# EOF\n"),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2", b"# EOF\n"),
    ],
)
def test_end_is_written_once(accept: str, end: bytes) -> None:
    exposition = Exposition(accept)
    text = exposition.text([single(counter("a_total", "A"), "p_", 1), single(gauge("b", "B"), "p_", 2, x="y")])
    assert exposition.end == end
    assert not text.endswith(b"# EOF\n")
    assert b"p_a_total 1.0\n" in text
    assert b'p_b{x="y"} 2.0\n' in text


def test_alarm_is_set(broker: MemoryBroker) -> None:
    broker.broker.alarms.set("disk")
    found = {family.name: family.samples[0].value for family in alarm_families(broker.broker)}
    assert found == {
        "rabbitmq_alarms_file_descriptor_limit": 0,
        "rabbitmq_alarms_free_disk_space_watermark": 1,
        "rabbitmq_alarms_memory_used_watermark": 0,
    }


def test_logins_are_counted_by_protocol(broker: MemoryBroker) -> None:
    broker.accounts.attempts.count("amqp091", succeeded=False)
    attempts = broker.accounts.attempts.by_protocol["amqp091"]
    found = {
        sample.name: sample.value
        for _, family in node_families(context(broker), "p_")
        for sample in family.samples
        if sample.labels == {"protocol": "amqp091"}
    }
    assert found == {
        "p_auth_attempts_total": attempts.total,
        "p_auth_attempts_succeeded_total": attempts.succeeded,
        "p_auth_attempts_failed_total": attempts.failed,
    }
    assert attempts.failed >= 1

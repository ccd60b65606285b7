"""Our metrics against those of RabbitMQ 3.10.8: names, types and labels.

The samples were captured from a live node. What differs is listed here with its reason; a row that explains nothing
any more fails.
"""

from __future__ import annotations

import gzip
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

from tests.integration.management.comparison import unexplained, unused
from tests.integration.management.scene import VHOST, Traffic, make
from tests.integration.management.scrapes import OPENMETRICS, families, label_names, scrape, types, value, values
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Connection

SAMPLES: Final = Path(__file__).parent / "samples"

#: What differs, and why.
NAMES: Final = {
    "missing rabbitmq*_process_reductions_total": "work of Erlang processes",
    "missing rabbitmq_erlang_processes_limit": "Erlang processes",
    "missing rabbitmq_erlang_gc_reclaimed_bytes_total": "Python does not tell",
    "missing rabbitmq_erlang_scheduler_run_queue": "Erlang's schedulers",
    "missing rabbitmq_erlang_net_ticktime_seconds": "there is one node",
    "missing rabbitmq_io_seek_*": "files are read by offset and written at their end",
    "missing rabbitmq_io_reopen_ops_total": "Erlang's file handle cache",
    "missing rabbitmq_schema_db_*": "Mnesia, Erlang's database",
    "missing rabbitmq_queue_index_*": "queues have no index beside their messages",
    "missing rabbitmq_raft_*": "quorum queues have one member, and no Raft",
    "missing erlang_*": "Erlang's virtual machine, and its database",
    "missing telemetry_*": "how long scrapes take, as RabbitMQ's exporter measures itself",
    "added leveret_queue_dropped_total": "messages that left otherwise than by being acknowledged, by reason",
    "added leveret_queue_refused_total": "publishes that full queues refused",
    "added leveret_queue_refused_told_total": "of these, those whose publishers were told",
    "added leveret_queue_dead_lettered_total": "what went to dead-letter exchanges, by reason",
    "added leveret_queue_dead_letters_lost_total": "what no queue has taken of that, by reason",
    "added leveret_exchange_messages_delayed": "messages that wait in exchanges until they are due",
    "added leveret_exchange_messages_delayed_bytes": "their size",
    "added leveret_exchange_deduplicated_total": "duplicates that exchanges have dropped",
    "added leveret_exchange_remembered_values": "what they remember",
}
#: Labels that differ, and why.
LABELS: Final = {
    "rabbitmq_channel_*: channel vhost for channel exchange vhost": "a channel counts its messages as a whole",
    "rabbitmq_channel_*: channel vhost for channel queue vhost": "the same",
    "rabbitmq_queue_messages_published_total: queue queue_vhost for *": "a queue counts its messages as a whole",
    "rabbitmq_identity_info: *": "today's dashboards choose by rabbitmq_endpoint",
}
#: What the dashboard RabbitMQ-Overview draws.
DASHBOARD: Final = [
    "rabbitmq_queue_messages_ready", "rabbitmq_queue_messages_unacked", "rabbitmq_queues", "rabbitmq_connections",
    "rabbitmq_channels", "rabbitmq_erlang_uptime_seconds", "rabbitmq_resident_memory_limit_bytes",
    "rabbitmq_process_resident_memory_bytes", "rabbitmq_disk_space_available_bytes",
    "rabbitmq_disk_space_available_limit_bytes", "rabbitmq_process_max_fds", "rabbitmq_process_open_fds",
    "rabbitmq_process_max_tcp_sockets", "rabbitmq_process_open_tcp_sockets", "rabbitmq_connections_opened_total",
    "rabbitmq_connections_closed_total", "rabbitmq_channels_opened_total", "rabbitmq_channels_closed_total",
    "rabbitmq_queues_declared_total", "rabbitmq_queues_created_total", "rabbitmq_queues_deleted_total",
    "rabbitmq_global_publishers", "rabbitmq_global_consumers", "rabbitmq_global_messages_received_total",
    "rabbitmq_global_messages_received_confirm_total", "rabbitmq_global_messages_confirmed_total",
    "rabbitmq_global_messages_routed_total", "rabbitmq_global_messages_unroutable_dropped_total",
    "rabbitmq_global_messages_unroutable_returned_total", "rabbitmq_global_messages_delivered_total",
    "rabbitmq_global_messages_delivered_consume_manual_ack_total",
    "rabbitmq_global_messages_delivered_consume_auto_ack_total",
    "rabbitmq_global_messages_delivered_get_manual_ack_total",
    "rabbitmq_global_messages_delivered_get_auto_ack_total", "rabbitmq_global_messages_get_empty_total",
    "rabbitmq_global_messages_redelivered_total", "rabbitmq_global_messages_acknowledged_total",
    "rabbitmq_build_info", "rabbitmq_identity_info",
]  # fmt: skip
DETAILED_FAMILIES: Final = (
    "queue_coarse_metrics",
    "queue_consumer_count",
    "queue_metrics",
    "channel_metrics",
    "channel_exchange_metrics",
    "connection_metrics",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    """A broker with queues, and with clients at work."""
    with LeveretProcess(tmp_path_factory.mktemp("prometheus")) as process:
        make(Management(process.http_url))
        with Traffic(process.url):
            yield process


def sample(name: str) -> str:
    return (SAMPLES / f"prometheus-{name}.txt").read_text("utf-8")


def type_differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """What one has that the other has not, and types that are not the same."""
    missing = [f"missing {name}" for name in theirs if name not in ours]
    added = [f"added {name}" for name in ours if name not in theirs]
    other = [f"{name}: {kind} for {theirs[name]}" for name, kind in ours.items() if theirs.get(name, kind) != kind]
    return [*missing, *added, *other]


def label_differences(theirs: str, ours: str) -> list[str]:
    found = label_names(ours)
    return [
        f"{name}: {' '.join(sorted(found[name]))} for {' '.join(sorted(labels))}"
        for name, labels in label_names(theirs).items()
        if name in found and found[name] != labels
    ]


def aggregated_differences(process: LeveretProcess) -> list[str]:
    theirs, ours = sample("metrics"), types(scrape(process))
    # The sample has but the names of some, of which it tells in its last line.
    named = theirs.partition("names only: ")[2].split()
    return [*type_differences(types(theirs), ours), *(f"missing {name}" for name in named if name not in ours)]


def all_label_differences(process: LeveretProcess) -> list[str]:
    found = label_differences(sample("metrics"), scrape(process))
    return [*found, *label_differences(sample("per-object"), scrape(process, "metrics/per-object"))]


def detailed(process: LeveretProcess, names: Iterable[str], vhost: str | None = None) -> str:
    query = "&".join(f"family={name}" for name in names)
    return scrape(process, f"metrics/detailed?{query}" + (f"&vhost={quote(vhost, safe='')}" if vhost else ""))


def test_names_and_types_are_rabbitmqs(broker: LeveretProcess) -> None:
    assert unexplained(aggregated_differences(broker), NAMES) == []


def test_labels_are_rabbitmqs(broker: LeveretProcess) -> None:
    assert unexplained(all_label_differences(broker), LABELS) == []


def test_every_row_explains_something(broker: LeveretProcess) -> None:
    theirs = types(sample("detailed"))
    found = [*aggregated_differences(broker), *type_differences(theirs, types(detailed(broker, DETAILED_FAMILIES)))]
    assert unused(found, NAMES) == []
    assert unused(all_label_differences(broker), LABELS) == []


def test_detailed_names_and_types_are_rabbitmqs(broker: LeveretProcess) -> None:
    theirs, ours = types(sample("detailed")), types(detailed(broker, DETAILED_FAMILIES, VHOST))
    assert unexplained(type_differences(theirs, ours), NAMES) == []


def test_objects_have_all_that_rabbitmqs_have(broker: LeveretProcess) -> None:
    theirs, ours = label_names(sample("per-object")), label_names(scrape(broker, "metrics/per-object"))
    assert unexplained([f"missing {name}" for name in theirs if name not in ours], NAMES) == []


def test_the_dashboard_finds_its_series(broker: LeveretProcess) -> None:
    text = scrape(broker)
    assert set(DASHBOARD) <= set(label_names(text))
    identity = next(family for family in families(text) if family.name == "rabbitmq_identity_info").samples[0]
    assert identity.labels["rabbitmq_endpoint"] == "aggregated"
    assert identity.labels["rabbitmq_cluster_permanent_id"]


def test_the_sums_are_those_of_the_objects(broker: LeveretProcess) -> None:
    whole, single = values(scrape(broker)), values(scrape(broker, "metrics/per-object"))
    for name in ("rabbitmq_queue_messages_ready", "rabbitmq_queue_messages_bytes", "rabbitmq_queue_consumers"):
        total = sum(number for (each, _), number in single.items() if each == name)
        assert whole[name, frozenset()] == total > 0


def test_openmetrics_is_spoken_too(broker: LeveretProcess) -> None:
    for path in ("metrics", "metrics/per-object", "metrics/detailed?family=queue_metrics"):
        plain, open_text = scrape(broker, path), scrape(broker, path, Accept=OPENMETRICS)
        assert open_text.endswith("# EOF\n")
        assert open_text.count("# EOF") == 1
        assert set(values(open_text)) == set(values(plain))


def test_only_families_and_vhosts_that_are_asked_for(broker: LeveretProcess) -> None:
    text = detailed(broker, ["queue_consumer_count", "vhost_status"], VHOST)
    assert set(types(text)) == {
        "rabbitmq_detailed_queue_consumers",
        "rabbitmq_cluster_vhost_status",
        "rabbitmq_build_info",
        "rabbitmq_identity_info",
    }
    assert value(text, "rabbitmq_detailed_queue_consumers", vhost=VHOST, queue="orders.new") == 1
    assert value(text, "rabbitmq_cluster_vhost_status", vhost=VHOST) == 1
    other = detailed(broker, ["queue_consumer_count", "vhost_status"], "/")
    assert "orders.new" not in other
    assert set(types(detailed(broker, []))) == {"rabbitmq_build_info", "rabbitmq_identity_info"}


def test_the_answer_is_compressed_for_those_who_can_read_it(broker: LeveretProcess) -> None:
    request = urllib.request.Request(f"{broker.prometheus_url}/metrics", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=120) as response:
        assert response.headers["content-encoding"] == "gzip"
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert b"rabbitmq_queues " in gzip.decompress(response.read())
    request = urllib.request.Request(f"{broker.prometheus_url}/metrics", headers={"Accept-Encoding": "gzip;q=0"})
    with urllib.request.urlopen(request, timeout=120) as response:
        assert b"rabbitmq_queues " in response.read()


def test_paths_may_end_in_a_slash(broker: LeveretProcess) -> None:
    for path in ("metrics/", "metrics/per-object/", "metrics/detailed/?family=queue_coarse_metrics"):
        assert "rabbitmq_identity_info" in scrape(broker, path)


def test_what_is_not_a_scrape(broker: LeveretProcess) -> None:
    head = urllib.request.Request(f"{broker.prometheus_url}/metrics", method="HEAD")
    with urllib.request.urlopen(head, timeout=120) as response:
        assert response.status == 204
    with pytest.raises(urllib.error.HTTPError) as refused:
        scrape(broker, "metrics/nope")
    assert (refused.value.code, refused.value.read()) == (404, b"Unknown Registry")


def counters(text: str) -> dict[object, float]:
    kinds = {family.name for family in families(text) if family.type == "counter"}
    return {key: number for key, number in values(text).items() if key[0].removesuffix("_total") in kinds}


def test_counters_never_go_back(leveret_process: Callable[..., LeveretProcess]) -> None:
    process = leveret_process()
    scrapes = [scrape(process)]
    with Connection(process.url) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        for _ in range(5):
            channel.publish("", "q", b"x")
        for _ in range(3):
            assert channel.get("q", no_ack=True) is not None
        channel.get("q", no_ack=True)
        scrapes.append(scrape(process))
        channel.queue_delete("q")
        scrapes.append(scrape(process))
    Management(process.http_url).request("DELETE", "vhosts", "/")
    scrapes.append(scrape(process))
    for before, after in pairwise(scrapes):
        was, now = counters(before), counters(after)
        assert {key: (number, now.get(key)) for key, number in was.items() if now.get(key, -1) < number} == {}
    last = scrapes[-1]
    assert value(last, "rabbitmq_global_messages_received_total", protocol="amqp091") == 5
    assert value(last, "rabbitmq_channel_messages_published_total") == 5
    assert value(last, "rabbitmq_queue_messages_published_total") == 5
    got = "rabbitmq_global_messages_delivered_get_auto_ack_total"
    assert value(last, got, protocol="amqp091", queue_type="rabbit_classic_queue") == 4
    assert value(last, "rabbitmq_queues_deleted_total") == value(last, "rabbitmq_queues_created_total") == 1
    assert value(last, "rabbitmq_queues") == 0


def test_losses_are_counted_by_reason(leveret_process: Callable[..., LeveretProcess]) -> None:
    process = leveret_process()
    management = Management(process.http_url)
    for name, arguments in (
        ("drops", {"x-max-length": 2}),
        ("refuses", {"x-max-length": 1, "x-overflow": "reject-publish"}),
        ("buries", {"x-max-length": 1, "x-dead-letter-exchange": "amq.fanout"}),
    ):
        management.request("PUT", "queues", "/", name, body={"durable": True, "arguments": arguments})
    with Connection(process.url) as connection:
        channel = connection.channel()
        for name in ("drops", "refuses", "buries"):
            for _ in range(5):
                channel.publish("", name, b"x")
        channel.queue_declare("drops", passive=True)
    whole, single = scrape(process), scrape(process, "metrics/per-object")
    assert value(whole, "leveret_queue_dropped_total", reason="maxlen") == 7
    assert value(whole, "leveret_queue_refused_total") == 4
    assert value(whole, "leveret_queue_refused_told_total") == 0
    assert value(whole, "leveret_queue_dead_lettered_total", reason="maxlen") == 4
    assert value(whole, "leveret_queue_dead_letters_lost_total", reason="maxlen") == 4, "nothing is bound to amq.fanout"
    assert value(single, "leveret_queue_dropped_total", vhost="/", queue="drops", reason="maxlen") == 3
    assert value(single, "leveret_queue_refused_total", vhost="/", queue="refuses") == 4
    assert value(single, "leveret_queue_dead_lettered_total", vhost="/", queue="buries", reason="maxlen") == 4
    assert value(single, "leveret_queue_dead_letters_lost_total", vhost="/", queue="buries", reason="maxlen") == 4
    dead, labels = "rabbitmq_global_messages_dead_lettered_maxlen_total", {"queue_type": "rabbit_classic_queue"}
    assert value(whole, dead, **labels, dead_letter_strategy="at_most_once") == 4
    assert value(whole, dead, **labels, dead_letter_strategy="disabled") == 3


def test_objects_may_be_the_default(leveret_process: Callable[..., LeveretProcess]) -> None:
    process = leveret_process(settings={"prometheus.return_per_object_metrics": "true"})
    Management(process.http_url).request("PUT", "queues", "/", "q", body={"durable": True})
    assert value(scrape(process), "rabbitmq_queue_messages_ready", vhost="/", queue="q") == 0


def test_what_files_and_dead_letters_are_counted(leveret_process: Callable[..., LeveretProcess]) -> None:
    process = leveret_process()
    before = scrape(process)
    with Connection(process.url) as connection:
        channel = connection.channel()
        channel.queue_declare("letters", durable=True)
        arguments = [
            ("x-queue-type", "S", "quorum"),
            ("x-overflow", "S", "reject-publish"),
            ("x-dead-letter-strategy", "S", "at-least-once"),
            ("x-dead-letter-exchange", "S", ""),
            ("x-dead-letter-routing-key", "S", "letters"),
        ]
        channel.queue_declare("q", durable=True, arguments=arguments)
        channel.confirm_select()
        for _ in range(3):
            channel.publish("", "q", bytes(1000), {"delivery_mode": 2})
        assert channel.wait_for_confirms(3) == [True] * 3
        for _ in range(2):
            delivery = channel.get("q")
            assert delivery is not None
            channel.reject(delivery.delivery_tag, requeue=False)
        channel.sync("q")
        wait_until(lambda: channel.queue_declare("letters", passive=True).message_count == 2, "dead letters arrive")
    after = scrape(process)
    for name in ("write_ops", "write_time_seconds", "sync_ops", "sync_time_seconds"):
        assert value(after, f"rabbitmq_io_{name}_total") > value(before, f"rabbitmq_io_{name}_total"), name
    assert value(after, "rabbitmq_io_write_bytes_total") - value(before, "rabbitmq_io_write_bytes_total") > 3000
    labels = {"queue_type": "rabbit_quorum_queue", "dead_letter_strategy": "at_least_once"}
    assert value(after, "rabbitmq_global_messages_dead_lettered_confirmed_total", **labels) == 2

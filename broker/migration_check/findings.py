"""What is found about moving here: findings, how they become rows of the report, and those about what runs there.

Source: the HTTP API of RabbitMQ 3.10.8, observed; https://www.rabbitmq.com/docs/plugins
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple


class Verdict(IntEnum):
    """How much of what a row is about works here; the worst comes first."""

    UNSUPPORTED = 0
    DIFFERS = 1
    FINE = 2

    def __str__(self) -> str:
        """Return the verdict as the report shows it."""
        return {self.UNSUPPORTED: "not supported", self.DIFFERS: "differs", self.FINE: "fine"}[self]


class Finding(NamedTuple):
    """What was found about one object.

    Args:
        area: Kind of object, such as `queues`.
        name: The object; with its virtual host in front if it is not in `/`.
        what: What it does here.
        advice: What to do, or where to read about it; empty if there is nothing to do.
    """

    verdict: Verdict
    area: str
    name: str
    what: str
    advice: str = ""


class Row(NamedTuple):
    """A row of the report: the same finding about some objects of a kind."""

    verdict: Verdict
    area: str
    names: list[str]
    what: str
    advice: str

    def to_json(self) -> dict[str, Any]:
        """Return the row for `--formatter json`."""
        return {**self._asdict(), "verdict": str(self.verdict), "count": len(self.names)}


def to_rows(findings: Iterable[Finding]) -> list[Row]:
    """Return findings as rows, the worst first; inside a verdict they keep their order."""
    names: dict[Finding, dict[str, None]] = {}
    for finding in findings:
        names.setdefault(finding._replace(name=""), {})[finding.name] = None
    rows = [Row(each.verdict, each.area, list(found), each.what, each.advice) for each, found in names.items()]
    return sorted(rows, key=lambda row: row.verdict)


def count_verdicts(rows: Iterable[Row]) -> dict[str, int]:
    """Return the number of rows by verdict."""
    counts = Counter(row.verdict for row in rows)
    return {str(verdict): counts[verdict] for verdict in Verdict}


# -- nodes, plugins, listeners and clients of a running RabbitMQ ----------------------------------------------

_UNSUPPORTED: Final = Verdict.UNSUPPORTED
_DIFFERS: Final = Verdict.DIFFERS
_FINE: Final = Verdict.FINE

_BUILT_IN: Final = "is built in"
_NO_PROTOCOL: Final = "the protocol is not there"
_STAY: Final = "clients of it have to stay, or to speak AMQP 0-9-1"

#: Verdict, what there is here, and advice, by the beginning of a plugin's name; the longest beginning counts.
_PLUGINS: Final[Mapping[str, tuple[Verdict, str, str]]] = {
    "rabbitmq_amqp1_0": (_UNSUPPORTED, _NO_PROTOCOL, _STAY),
    "rabbitmq_auth_backend_": (_UNSUPPORTED, "this backend is not there", "docs/access.md"),
    "rabbitmq_auth_backend_cache": (_FINE, "is built in: auth_cache.ttl", "docs/access.md"),
    "rabbitmq_auth_backend_http": (_FINE, _BUILT_IN, "docs/access.md"),
    "rabbitmq_auth_backend_ldap": (_FINE, "is built in: its queries can be pasted", "docs/ldap.md"),
    "rabbitmq_auth_backend_oauth2": (_FINE, _BUILT_IN, "docs/oauth2.md"),
    "rabbitmq_auth_mechanism_ssl": (_FINE, _BUILT_IN, "docs/operations.md#tls"),
    "rabbitmq_consistent_hash_exchange": (_FINE, _BUILT_IN, ""),
    "rabbitmq_delayed_message_exchange": (_FINE, _BUILT_IN, ""),
    "rabbitmq_event_exchange": (_FINE, _BUILT_IN, "docs/audit.md"),
    "rabbitmq_federation": (_UNSUPPORTED, "there is no federation", "a shovel does the same: docs/shovels.md"),
    "rabbitmq_jms_topic_exchange": (_UNSUPPORTED, "the exchange type is not there", "use a topic or headers exchange"),
    "rabbitmq_management": (_FINE, _BUILT_IN, ""),
    "rabbitmq_message_deduplication": (_FINE, _BUILT_IN, ""),
    "rabbitmq_mqtt": (_UNSUPPORTED, _NO_PROTOCOL, _STAY),
    "rabbitmq_peer_discovery_": (_FINE, "is not needed", "docs/replication.md"),
    "rabbitmq_prometheus": (_FINE, _BUILT_IN, ""),
    "rabbitmq_random_exchange": (_FINE, _BUILT_IN, ""),
    "rabbitmq_recent_history_exchange": (_FINE, _BUILT_IN, ""),
    "rabbitmq_sharding": (_DIFFERS, "the exchange type x-modulus-hash is built in, its queues are not", ""),
    "rabbitmq_shovel": (_FINE, _BUILT_IN, "docs/shovels.md"),
    "rabbitmq_stomp": (_UNSUPPORTED, _NO_PROTOCOL, _STAY),
    "rabbitmq_stream": (_DIFFERS, "streams are there, over AMQP 0-9-1 only", "docs/streams.md"),
    "rabbitmq_top": (_FINE, "shows Erlang processes, of which there are none", ""),
    "rabbitmq_tracing": (_DIFFERS, "the firehose is there (trace_on); it writes no files", "docs/management.md"),
    "rabbitmq_trust_store": (_UNSUPPORTED, "certificates are trusted by their authority", "docs/operations.md#tls"),
    "rabbitmq_web_dispatch": (_FINE, _BUILT_IN, ""),
    "rabbitmq_web_mqtt": (_UNSUPPORTED, _NO_PROTOCOL, _STAY),
    "rabbitmq_web_stomp": (_UNSUPPORTED, _NO_PROTOCOL, _STAY),
}
#: Listeners that are there, or that nobody needs.
_LISTENERS: Final = frozenset(
    ("amqp", "amqp/ssl", "http", "https", "http/prometheus", "https/prometheus", "clustering")
)
_AMQP: Final = ("AMQP 0-9-1", "AMQP 0-9")
#: How a plugin, such as the shovel, reaches its own broker.
_OWN: Final = "Direct 0-9-1"


@dataclass(frozen=True, slots=True)
class Observed:
    """What the HTTP API of a running broker shows; each is empty if it is not known.

    Attributes:
        overview: GET /api/overview.
        nodes: GET /api/nodes.
        connections: GET /api/connections.
        channels: GET /api/channels.
        queues: GET /api/queues.
    """

    overview: Mapping[str, Any] = field(default_factory=dict)
    nodes: Sequence[Mapping[str, Any]] = ()
    connections: Sequence[Mapping[str, Any]] = ()
    channels: Sequence[Mapping[str, Any]] = ()
    queues: Sequence[Mapping[str, Any]] = ()


def judge_observed(seen: Observed) -> Iterator[Finding]:
    """Yield what would be different for what runs now."""
    names = [str(each.get("name")) for each in seen.nodes]
    if len(names) > 1:
        for name in names:
            what = "one node is the broker, the others are standbys"
            yield Finding(_DIFFERS, "nodes", name, what, "docs/replication.md")
    plugins = {plugin for node in seen.nodes for plugin in node.get("enabled_plugins") or ()}
    yield from (_judge_plugin(plugin) for plugin in sorted(plugins))
    yield from _listeners(seen.overview)
    for connection in seen.connections:
        yield _judge_connection(connection)
    for channel in seen.channels:
        if channel.get("global_prefetch_count"):
            what = "has a prefetch limit for the whole channel (global QoS): as in RabbitMQ 3, while 4.3 refuses it"
            yield Finding(_FINE, "channels", str(channel.get("name")), what)
    for queue in seen.queues:
        if queue.get("exclusive"):
            vhost, name = queue.get("vhost", "/"), str(queue.get("name"))
            what = "is exclusive: it is not moved, its connection declares it again"
            yield Finding(_FINE, "queues", name if vhost == "/" else f"{vhost}: {name}", what)


def _judge_plugin(plugin: str) -> Finding:
    beginnings = [each for each in _PLUGINS if plugin.startswith(each)]
    if not beginnings:
        return Finding(_UNSUPPORTED, "plugins", plugin, "is not known here", "docs/compatibility.md")
    verdict, what, advice = _PLUGINS[max(beginnings, key=len)]
    return Finding(verdict, "plugins", plugin, what, advice)


def _listeners(overview: Mapping[str, Any]) -> Iterator[Finding]:
    protocols = {str(each.get("protocol")) for each in overview.get("listeners") or ()}
    for protocol in sorted(protocols - _LISTENERS):
        yield Finding(_UNSUPPORTED, "listeners", protocol, _NO_PROTOCOL, _STAY)


def _judge_connection(connection: Mapping[str, Any]) -> Finding:
    name = str(connection.get("name"))
    protocol = connection.get("protocol")
    if protocol == _OWN:
        return Finding(_FINE, "connections", name, "is the broker's own, of a plugin")
    if protocol not in _AMQP:
        what = f"speaks {protocol}, which is not there"
        return Finding(_UNSUPPORTED, "connections", name, what, _STAY)
    properties = connection.get("client_properties") or {}
    client = " ".join(str(properties[key]) for key in ("product", "version") if properties.get(key))
    return Finding(_FINE, "connections", name, f"speaks {protocol}; its client is {client or 'not named'}")

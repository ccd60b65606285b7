"""The broker: virtual hosts, alarms, connections and global parameters."""

from __future__ import annotations

import base64
import json
import logging
import secrets
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from leveret.broker.core.clients import ClientConnection as ClientConnection
from leveret.broker.core.clients import Connections
from leveret.broker.core.counters.counters import BrokerStatistics
from leveret.broker.core.definitions_gate import ALWAYS_OPEN, DefinitionsGate
from leveret.broker.core.events import BROKER, Events, named
from leveret.broker.core.message_stores import MessageStores
from leveret.broker.core.queues.traits import DEFAULT_RELEASE
from leveret.broker.core.resources.alarms import Alarms
from leveret.broker.core.resources.sockets import SocketBudget
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhosts.event_exchange import EventExchange
from leveret.broker.core.vhosts.event_fields import (
    exchange_fields,
    parameter_fields,
    vhost_fields,
    vhost_limits_fields,
    without_passwords,
)
from leveret.broker.core.vhosts.metadata import VirtualHostMetadata, metadata_to_json
from leveret.broker.core.vhosts.recorder import DurableRecorder
from leveret.broker.core.vhosts.tracing import Tracer
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.patterns import report_to
from leveret.storage.backings import QueueBacking
from leveret.storage.definitions_database import Journal, Key

_KIND: Final = "global_parameter"
_PARAMETER: Final = "parameter"
#: A permanent identifier of the broker, generated at the first start.
CLUSTER_ID: Final = "internal_cluster_id"
CLUSTER_NAME: Final = "cluster_name"


class GlobalParameters:
    """The global parameters of a broker. Every change is durable.

    Attributes:
        journal: Where changes are written.

    Args:
        events: Who is told of changes.
    """

    def __init__(self, events: Events) -> None:
        self.journal: Journal = ALWAYS_OPEN
        self._events = events
        self._values: dict[str, Any] = {}

    @property
    def values(self) -> Mapping[str, Any]:
        """All parameters by name."""
        return MappingProxyType(self._values)

    def set(self, name: str, value: Any) -> bool:
        """Set a parameter; return whether it is new.

        Args:
            name: Name of the parameter.
            value: A JSON value.
        """
        is_new = name not in self._values
        self._values[name] = value
        self.journal.put(_KIND, (name,), {"value": value})
        self._events.tell("parameter.set", _global_parameter, name, value)
        return is_new

    def clear(self, name: str) -> bool:
        """Remove a parameter; return whether it existed."""
        if name not in self._values:
            return False
        del self._values[name]
        self.journal.delete(_KIND, (name,))
        # As in RabbitMQ: set to nothing.
        self._events.tell("parameter.set", _global_parameter, name)
        return True

    def ensure_cluster_id(self) -> None:
        """Generate the cluster ID if there is none."""
        if CLUSTER_ID not in self._values:
            identity = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode("ascii").rstrip("=")
            self.set(CLUSTER_ID, f"leveret-cluster-id-{identity}")


class RuntimeParameters:
    """The runtime parameters of components that have no fields of their own in a virtual host. Every change is durable.

    Attributes:
        journal: Where changes are written.
        watchers: Called with virtual host and name after a parameter of their component has been set or cleared.

    Args:
        events: Who is told of changes.
    """

    def __init__(self, events: Events) -> None:
        self.journal: Journal = ALWAYS_OPEN
        self._events = events
        self.watchers: dict[str, Callable[[str, str], None]] = {}
        self._values: dict[tuple[str, str, str], Any] = {}

    @property
    def values(self) -> Mapping[tuple[str, str, str], Any]:
        """All parameters, JSON values by virtual host, component and name."""
        return MappingProxyType(self._values)

    def set(self, vhost_name: str, component: str, name: str, value: Any) -> bool:
        """Set a parameter to a JSON value; return whether it is new. An equal value changes nothing, as in RabbitMQ."""
        key = vhost_name, component, name
        is_new = key not in self._values
        # In Python 1 equals true.
        if not is_new and json.dumps(self._values[key], sort_keys=True) == json.dumps(value, sort_keys=True):
            return False
        self._values[key] = value
        self.journal.put(_PARAMETER, key, {"value": value})
        self._events.tell("parameter.set", parameter_fields, *key, value)
        self._tell(*key)
        return is_new

    def clear(self, vhost_name: str, component: str, name: str) -> bool:
        """Remove a parameter; return whether it existed."""
        key = vhost_name, component, name
        if key not in self._values:
            return False
        del self._values[key]
        self.journal.delete(_PARAMETER, key)
        self._events.tell("parameter.cleared", parameter_fields, *key)
        self._tell(*key)
        return True

    def clear_vhost(self, vhost_name: str) -> None:
        """Remove all parameters of a virtual host."""
        for key in [key for key in self._values if key[0] == vhost_name]:
            self.clear(*key)

    def _tell(self, vhost_name: str, component: str, name: str) -> None:
        watcher = self.watchers.get(component)
        if watcher is not None:
            watcher(vhost_name, name)


def _global_parameter(name: str, *value: Any) -> dict[str, Any]:
    fields = {"component": "global", "name": name}
    return {**fields, "value": without_passwords(value[0])} if value else fields


log = logging.getLogger("leveret.patterns")
losses_log = logging.getLogger("leveret.losses")


class Broker:
    """The state of the broker.

    Args:
        turn: Runs deliveries and writes at the end of each turn.
        trust_publishers: Whether x-death headers set by publishers are treated as the broker's own.
        stores: The message stores of queues; by default in memory.
        alarms: Resource alarms, which the stores set too.
        gate: Delays replies that depend on definitions that are not written yet, also for the stores.
        cluster_name: Cluster name unless a global parameter sets it; by default with the name of the host.
        store_files: Number of message files that may be open.
        event_vhost: Name of the virtual host that has the exchange of events; None for no such exchange.
        quorum_release: See VirtualHost.

    Attributes:
        events: Who is told what is done.
        stores: The message stores of queues.
        vhosts: Virtual hosts by name.
        alarms: Resource alarms.
        gate: Delays replies that depend on definitions that are not written yet.
        global_parameters: Parameters that belong to no virtual host.
        parameters: Parameters of virtual hosts, without policies and limits.
        default_cluster_name: See cluster_name above.
        connections: Connections that have opened a virtual host.
        statistics: Counters of the whole broker.
        last_sample: When the last sample of all counters was due, in seconds since 1970; 0 before the first.
        sockets: Limits of the number of clients.
        losses_since: Time since when losses are counted, in seconds since 1970; restarts may lie in between.
    """

    def __init__(
        self,
        turn: Turn,
        timers: Timers,
        stores: MessageStores,
        *,
        trust_publishers: bool = False,
        alarms: Alarms | None = None,
        gate: DefinitionsGate | None = None,
        cluster_name: str | None = None,
        store_files: int = 384,
        event_vhost: str | None = None,
        quorum_release: str = DEFAULT_RELEASE,
    ) -> None:
        self.events = Events(timers)
        self._event_vhost = event_vhost
        self._event_exchange = None if event_vhost is None else EventExchange(turn)
        self.stores = stores
        self.stores.on_readable = self._resume
        self.turn = turn
        self.timers = timers
        self._trust_publishers = trust_publishers
        self._quorum_release = quorum_release
        self._journal: Journal = ALWAYS_OPEN
        self.vhosts: dict[str, VirtualHost] = {}
        self.alarms = alarms or Alarms()
        self.alarms.on_change = self._tell_alarm
        self.gate = gate or DefinitionsGate(timers.real_call_later, self.alarms, turn.slice)
        self.global_parameters = GlobalParameters(self.events)
        self.parameters = RuntimeParameters(self.events)
        self.default_cluster_name = cluster_name or f"leveret@{socket.gethostname()}"
        report_to(_log_slow_pattern)
        self.statistics = BrokerStatistics()
        self.connections = Connections(self.statistics, self.events)
        self.last_sample = 0
        self.losses_since = timers.seconds()
        #: Definitions that could not be restored because their virtual host is missing: kind and key by virtual host.
        self._orphaned: dict[str, list[tuple[str, Key]]] = {}
        self.sockets = SocketBudget(store_files)

    def add_vhost(self, name: str) -> VirtualHost:
        """Return a virtual host, which is created if it does not exist."""
        if name not in self.vhosts:
            recorder = DurableRecorder(name, self._journal, self.gate, self.events)
            vhost = self.vhosts[name] = VirtualHost(
                name, self.turn, self.timers, self.stores, self._trust_publishers, recorder, self._quorum_release
            )
            if self._event_exchange is not None and name == self._event_vhost:
                self._event_exchange.open(vhost.topology)
            self._delete_orphaned(name)
            self.save_vhost(vhost)
            for exchange in vhost.topology.exchanges.values():
                self.events.tell("exchange.created", exchange_fields, exchange)
        return self.vhosts[name]

    def start_events(self) -> None:
        """Begin to tell what is done: definitions are restored."""
        if self._event_exchange is not None:
            self.events.takers.append(self._event_exchange)

    def backings(self) -> Iterator[QueueBacking]:
        """Return where the messages of all queues are kept."""
        return (queue.backing for vhost in self.vhosts.values() for queue in vhost.queues.values())

    def _resume(self, numbers: Collection[int]) -> None:
        """Let queues deliver messages that the system could not read for a while."""
        for vhost in self.vhosts.values():
            for queue in vhost.queues.values():
                if queue.backing.qid in numbers:
                    queue.resume()

    def note_unrestored(self, kind: str, key: Key, reason: str) -> None:
        """Note a definition that could not be restored; see Unrestored.add()."""
        vhost = self.vhosts.get(key[0])
        if vhost is not None:
            vhost.unrestored.add(kind, key, reason)
        else:
            self._orphaned.setdefault(key[0], []).append((kind, key))

    def _delete_orphaned(self, vhost_name: str) -> None:
        """Delete the remains of an earlier virtual host of that name."""
        for kind, key in self._orphaned.pop(vhost_name, ()):
            self._journal.delete(kind, key)
            if kind in ("queue", "exchange"):
                self.stores.delete_unrestored(key[0], key[1], kind)

    @property
    def cluster_name(self) -> str:
        """The name of the cluster."""
        return str(self.global_parameters.values.get(CLUSTER_NAME, self.default_cluster_name))

    def save_vhost(self, vhost: VirtualHost) -> None:
        """Save a virtual host with its limits and metadata, unless it has been deleted."""
        if self.vhosts.get(vhost.name) is not vhost:
            return
        limits = {
            "max_connections": vhost.max_connections,
            "max_queues": vhost.max_queues,
            "has_limits": vhost.has_limits,
        }
        self._journal.put("vhost", (vhost.name,), {**limits, "metadata": metadata_to_json(vhost.metadata)})

    def put_vhost(self, name: str, metadata: VirtualHostMetadata) -> VirtualHost:
        """Add a virtual host with metadata, or replace the metadata of one, and tell so."""
        kind = "vhost.updated" if name in self.vhosts else "vhost.created"
        vhost = self.add_vhost(name)
        self.set_metadata(vhost, metadata)
        self.events.tell(kind, vhost_fields, name, metadata, self.events.node)
        return vhost

    def set_metadata(self, vhost: VirtualHost, metadata: VirtualHostMetadata) -> None:
        """Replace and save the metadata of a virtual host. This also starts or stops tracing."""
        vhost.metadata = metadata
        if metadata.tracing != (vhost.tracer is not None):
            vhost.tracer = Tracer(vhost.topology, self.turn, self.default_cluster_name) if metadata.tracing else None
            # Channels have a reference, so that publishes and deliveries need no lookup.
            for connection in self.connections:
                if connection.vhost_name == vhost.name:
                    for channel in connection.channels:
                        channel.tracer = vhost.tracer
        self.save_vhost(vhost)

    def record_to(self, journal: Journal) -> None:
        """Write all further changes of definitions to a journal."""
        self._journal = journal
        self.global_parameters.journal = journal
        self.parameters.journal = journal
        for vhost in self.vhosts.values():
            vhost.recorder.journal = journal

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with its queues. The caller has closed its connections."""
        vhost = self.vhosts.pop(name)
        self.parameters.clear_vhost(name)
        waiting = vhost.delayed_count
        vhost.delete_contents()
        for exchange in vhost.topology.exchanges.values():
            self.events.tell("exchange.deleted", named, name, exchange.name)
        if waiting:
            # Nothing remains that could count them.
            losses_log.warning("vhost '%s' was deleted, and with its exchanges %d delayed messages", name, waiting)
        self.statistics.ended.absorb(vhost.statistics)
        self._journal.delete("vhost", (name,))
        self.events.tell("vhost.deleted", dict, {"name": name})
        if vhost.has_limits:
            self.tell_limits(name, None)
        self.events.tell("vhost.down", dict, {"name": name, "node": self.events.node}, by_broker=True)

    def tell_limits(self, vhost_name: str, limits: Mapping[str, Any] | None) -> None:
        """Tell that the limits of a virtual host are other ones; None if they are removed."""
        of_parameter = parameter_fields, vhost_name, "vhost-limits", "limits"
        if limits is None:
            self.events.tell("parameter.cleared", *of_parameter)
            self.events.tell("vhost.limits.cleared", vhost_limits_fields, vhost_name, {})
        else:
            self.events.tell("parameter.set", *of_parameter, limits or [])
            self.events.tell("vhost.limits.set", vhost_limits_fields, vhost_name, limits)

    def _tell_alarm(self, resource: str, is_set: bool) -> None:
        about = {"node": self.events.node, "source": resource}
        self.events.tell("alarm.set" if is_set else "alarm.cleared", dict, about, actor=BROKER)

    def forget_connection(self, connection: ClientConnection) -> None:
        """Stop counting a connection, if it has opened a virtual host."""
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        vhost = self.vhosts.get(connection.vhost_name)
        if vhost is not None:
            vhost.statistics.connections.absorb(connection.output.counters)


def _log_slow_pattern(source: str, text: str) -> None:
    """Log a pattern of a policy, permission or filter that takes too long; it is treated as not matching."""
    log.warning("pattern %a takes too long to match %a; names on which it takes too long do not match", source, text)

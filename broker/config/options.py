"""Every option, once: the fields of `Settings` are the declarations.

Names and meanings are rabbitmq.conf's where it has the option. A new option is one more field here: the
file, the environment, the command line and the reference follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.broker.config import kinds
from leveret.broker.config.declaration import Option, declared, group, option
from leveret.broker.config.kinds import Endpoint, ProductVersion, SyncRule
from leveret.broker.version import RABBITMQ_VERSION

_PORT: Final = kinds.integer(0, 65535)
# The empty pattern allows nothing.
_PATTERN: Final = kinds.text(empty=True)
_COUNT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPermissions:
    """What the default user may do in the default vhost; each a regular expression on names."""

    configure: str = option(_PATTERN, ".*", "Names that the default user may declare and delete.")
    write: str = option(_PATTERN, ".*", "Names that the default user may publish and bind to.")
    read: str = option(_PATTERN, ".*", "Names that the default user may consume and bind from.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHighWatermark:
    """Memory use above which the broker stops reading from publishers."""

    relative: float = option(
        kinds.real(0.0, 1.0),
        0.4,
        "Memory alarm above this share of the machine's (or container's) memory.",
        reloadable=True,
    )
    absolute: int | None = option(
        kinds.optional(kinds.size(1, 2**63 - 1), "none"),
        None,
        "Memory alarm above this size; comes before the relative one.",
        reloadable=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFreeLimit:
    """Free disk space below which the broker stops reading from publishers."""

    absolute: int = option(
        kinds.size(0, 2**63 - 1),
        50_000_000,
        "Disk alarm below this much free space; never below what the store may need, three segments and 32 MiB.",
        reloadable=True,
    )
    relative: float | None = option(
        kinds.optional(kinds.real(0.0, 1000.0), "none"),
        None,
        "Disk alarm below this share of the machine's (or container's) memory; comes before the absolute one.",
        reloadable=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SslOptions:
    """How connections are encrypted, and what is asked of clients."""

    certfile: Path | None = option(
        kinds.optional(kinds.path(), "none"),
        None,
        "The broker's certificate with its chain, a PEM file.",
        reloadable=True,
    )
    keyfile: Path | None = option(
        kinds.optional(kinds.path(), "none"), None, "Its private key, a PEM file.", reloadable=True
    )
    password: str | None = option(
        kinds.optional(kinds.text()), None, "Password of the key file, if it has one.", secret=True, reloadable=True
    )
    cacertfile: Path | None = option(
        kinds.optional(kinds.path(), "none"),
        None,
        "Authorities whose client certificates count, a PEM file.",
        reloadable=True,
    )
    verify: str = option(
        kinds.choice("verify_none", "verify_peer"),
        "verify_none",
        "Whether to ask clients for a certificate.",
        reloadable=True,
    )
    fail_if_no_peer_cert: bool = option(
        kinds.boolean(), False, "Refuse clients without a certificate; with verify_peer only.", reloadable=True
    )
    versions: tuple[str, ...] = option(
        kinds.names("tlsv1.2", "tlsv1.3", empty=False),
        ("tlsv1.2", "tlsv1.3"),
        "Versions of TLS to speak; older ones are not spoken.",
        reloadable=True,
    )
    ciphers: tuple[str, ...] = option(
        kinds.names(),
        (),
        "Cipher suites of TLS 1.2, as OpenSSL names them; none leaves the choice to OpenSSL.",
        reloadable=True,
    )
    honor_cipher_order: bool = option(
        kinds.boolean(), False, "Prefer the broker's order of cipher suites.", reloadable=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Where AMQP is listened for, where one port on all addresses of `host` is not enough."""

    tcp: tuple[Endpoint, ...] | None = option(
        kinds.endpoints(),
        None,
        'Addresses and ports for AMQP, such as `["127.0.0.1:5672", "[::1]:5672"]`; comes before `port`; none listens'
        " on none.",
    )
    ssl: tuple[Endpoint, ...] | None = option(
        kinds.endpoints(), None, "Addresses and ports for AMQP over TLS, likewise; comes before `amqps_port`."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpListenOptions:
    """How AMQP sockets are opened."""

    backlog: int = option(
        kinds.integer(1, 65535), 1024, "Connections that may wait to be accepted; the system may allow fewer."
    )
    nodelay: bool = option(kinds.boolean(), True, "Send small packets at once (TCP_NODELAY).")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compat:
    """What the broker shows to clients that behave differently with another broker."""

    advertise: ProductVersion | None = option(
        kinds.optional(kinds.product(), "none"),
        ProductVersion("RabbitMQ", RABBITMQ_VERSION),
        "Product and version that connection.start names to clients, some of which switch on it; with none Leveret's"
        " own, which stand in `platform` and `information` anyway.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How messages are kept on disk."""

    sync: SyncRule = option(
        kinds.sync_rule(),
        SyncRule("always"),
        "When messages are synced to the disk: before they are confirmed (always), at most every so often with confirms"
        " that do not wait for it (interval), or as the system likes (off); without always, a loss of power can lose"
        " confirmed messages.",
    )
    segment_size: int = option(
        kinds.size(65_536, 2**30),
        16_777_216,
        "Size at which a file of messages is full; a longer message has one of its own. It may be changed at any time"
        " (RabbitMQ's msg_store_file_size_limit).",
    )
    preload_messages: int = option(
        kinds.integer(0, _COUNT_MAX),
        16_384,
        "Messages to bring to memory when a queue ceases to be lazy; 0 brings none.",
    )
    embed_bodies_below: int = option(
        kinds.size(0, 2**31 - 1),
        4096,
        "Only messages smaller than this are brought to memory then, 0 for none (RabbitMQ's"
        " queue_index_embed_msgs_below).",
    )
    append_files: int = option(
        kinds.integer(1, _COUNT_MAX), 256, "Files that are kept open for writing; those that were used last."
    )
    read_files: int = option(
        kinds.integer(1, _COUNT_MAX), 128, "Files that are kept open for reading; those that were used last."
    )
    event_retention: int = option(
        kinds.duration(0, 2**53, "s"),
        604_800,
        "Time that the record of what became of messages is kept for analytics.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """What is shown to Prometheus."""

    return_per_object_metrics: bool = option(
        kinds.boolean(),
        False,
        "Show the metrics of every queue, channel and connection at /metrics, not their sums;"
        " /metrics/per-object always does.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cors:
    """Which pages of other origins may use the HTTP API."""

    allow_origins: tuple[str, ...] = option(
        kinds.names(), (), "Origins whose pages may use the HTTP API, such as `https://console.example`; `*` for all."
    )
    max_age: int = option(
        kinds.duration(0, _COUNT_MAX, "s"), 1800, "Time for which browsers may remember what such pages may do."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementHttp:
    """What requests to the HTTP API may bring."""

    max_body_size: int = option(
        kinds.size(1, 2**31 - 1),
        8_000_000,
        "Longest body of a request; a longer one is answered 400. An upload of definitions may always have 64 MiB, a"
        " form for logging in never more than 64 kB.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Management:
    """How the HTTP API and the UI are served."""

    path_prefix: str = option(kinds.url_path(), "", "Path in front of all others, such as `/broker`.")
    disable_stats: bool = option(
        kinds.boolean(), False, "Leave statistics out of all answers, as `?disable_stats=true` does for one."
    )
    enable_queue_totals: bool = option(
        kinds.boolean(), False, "Where statistics are left out, show the numbers of messages of queues all the same."
    )
    cors: Cors = group(Cors)
    http: ManagementHttp = group(ManagementHttp)
    allowed_hosts: tuple[str, ...] = option(
        kinds.names(),
        (),
        "Names under which a browser on this machine may log in as one of `loopback_users`, besides `localhost`, the"
        " machine's name and IP addresses; `*` for all. A foreign name that leads here could belong to a page that"
        " tries passwords.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementAgent:
    """What is measured for the HTTP API."""

    disable_metrics_collector: bool = option(
        kinds.boolean(), False, "Take no samples for rates and histories, and leave statistics out of all answers."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The configuration of one broker; `Settings()` is all defaults."""

    host: tuple[str, ...] = option(
        kinds.names(empty=False),
        ("0.0.0.0",),
        "Addresses to listen on, one or several; `::` is all of IPv6 and of IPv4.",
        flag="--host",
        metavar="H",
    )
    port: int = option(_PORT, 5672, "Port for AMQP; 0 takes a free one.", flag="--port", metavar="N")
    amqps_port: int | None = option(
        kinds.optional(_PORT, "none"),
        None,
        "Port for AMQP over TLS, 5671 by custom; 0 takes a free one.",
        flag="--amqps-port",
        metavar="N",
    )
    management_port: int = option(
        _PORT,
        15672,
        "Port for the HTTP API and UI; 0 takes a free one.",
        flag="--management-port",
        metavar="N",
    )
    management_tls_port: int | None = option(
        kinds.optional(_PORT, "none"),
        None,
        "Port for the HTTP API and UI over TLS, 15671 by custom; 0 takes a free one.",
        flag="--management-tls-port",
        metavar="N",
    )
    prometheus_port: int = option(
        _PORT,
        15692,
        "Port for Prometheus metrics; 0 takes a free one.",
        flag="--prometheus-port",
        metavar="N",
    )
    data_dir: Path = option(
        kinds.path(),
        Path("leveret-data"),
        "Folder for all that is durable.",
        flag="--data-dir",
        metavar="DIR",
    )
    log_level: str = option(
        kinds.choice("debug", "info", "warning", "error"),
        "info",
        "Least severe messages to log.",
        reloadable=True,
        flag="--log-level",
        metavar="L",
    )
    cluster_name: str | None = option(
        kinds.optional(kinds.text()), None, "Name that clients are shown; without it, the node's name."
    )

    # Created when the data folder is: an existing one keeps its users and vhosts.
    default_user: str = option(kinds.text(), "guest", "User to create in a new data folder.")
    default_pass: str = option(kinds.text(), "guest", "Password of the default user.", secret=True)
    default_vhost: str = option(kinds.text(), "/", "Vhost to create in a new data folder.")
    default_user_tags: tuple[str, ...] = option(
        kinds.names(), ("administrator",), "Tags of the default user; they say what it may manage."
    )
    default_permissions: DefaultPermissions = group(DefaultPermissions)

    loopback_users: tuple[str, ...] = option(
        kinds.names(), ("guest",), "Users that may only connect from this machine."
    )
    auth_mechanisms: tuple[str, ...] = option(
        kinds.names("PLAIN", "AMQPLAIN", "EXTERNAL", empty=False),
        ("PLAIN", "AMQPLAIN"),
        "SASL mechanisms to offer, in order; EXTERNAL, by client certificate, only where there is one.",
    )

    heartbeat: int = option(
        kinds.duration(0, 65535, "s"), 60, "Heartbeat timeout to suggest to clients; 0 suggests none."
    )
    frame_max: int = option(kinds.size(4096, 2**31 - 1), 131072, "Largest frame to allow a client, framing included.")
    channel_max: int = option(
        kinds.integer(0, 65535), 2047, "Channels that one connection may have open; 0 for no limit."
    )
    handshake_timeout: int = option(
        kinds.duration(1, _COUNT_MAX, "ms"),
        10_000,
        "Time that a client has from connecting to connection.open.",
    )
    # RabbitMQ has this hard cap too.
    max_message_size: int = option(
        kinds.size(1, 536870912), 134217728, "Largest message body; a larger one closes its channel with 406."
    )
    trust_publisher_x_death: bool = option(
        kinds.boolean(),
        False,
        "Let an x-death header that a publisher sends count when the message is dead-lettered, as RabbitMQ 3.10 does;"
        " newer releases, and Leveret by default, ignore it.",
    )
    consumer_timeout: int | None = option(
        kinds.optional(kinds.duration(1, 2**53, "ms"), "false", "infinity", "0"),
        1_800_000,
        "Time that a delivery may stay unacknowledged before its channel is closed with 406.",
    )
    consumer_max_per_channel: int | None = option(
        kinds.optional(kinds.integer(1, _COUNT_MAX), "none", "infinity"),
        None,
        "Consumers that one channel may have.",
    )
    channel_max_per_node: int | None = option(
        kinds.optional(kinds.integer(1, _COUNT_MAX), "none", "infinity", "0"),
        None,
        "Channels that all connections together may have open.",
    )
    connection_max: int | None = option(
        kinds.optional(kinds.integer(0, _COUNT_MAX), "none", "infinity"),
        None,
        "Connections that may be open at once.",
    )
    vm_memory_high_watermark: MemoryHighWatermark = group(MemoryHighWatermark)
    vm_memory_high_watermark_paging_ratio: float = option(
        kinds.real(0.0, 1.0),
        0.5,
        "Queues page messages out to disk above this share of the memory watermark.",
        reloadable=True,
    )
    disk_free_limit: DiskFreeLimit = group(DiskFreeLimit)
    listeners: Listeners = group(Listeners)
    tcp_listen_options: TcpListenOptions = group(TcpListenOptions)
    proxy_protocol: bool = option(
        kinds.boolean(),
        False,
        "Every AMQP connection comes through a proxy and begins with its PROXY protocol header, version 1 or 2,"
        " which says where the client is.",
    )
    ssl_options: SslOptions = group(SslOptions)
    ssl_handshake_timeout: int = option(
        kinds.duration(1, _COUNT_MAX, "ms"), 5_000, "Time that a client has for the TLS handshake."
    )
    ssl_cert_login_from: str = option(
        kinds.choice("distinguished_name", "common_name", "subject_alternative_name"),
        "distinguished_name",
        "What of a client's certificate names the user whom the mechanism EXTERNAL logs in.",
    )
    shutdown_timeout: int = option(
        kinds.duration(0, _COUNT_MAX, "ms"), 10_000, "Time that a clean stop may take before it is cut short."
    )

    storage: Storage = group(Storage)
    compat: Compat = group(Compat)
    management: Management = group(Management)
    management_agent: ManagementAgent = group(ManagementAgent)
    prometheus: Prometheus = group(Prometheus)

    load_definitions: Path | None = option(
        kinds.optional(kinds.path(), "none"),
        None,
        "JSON file of definitions to import at every start, as exported by RabbitMQ. If it has users, a new data"
        " directory gets no default user; likewise vhosts.",
        flag="--import-definitions",
        metavar="FILE",
    )
    skip_unchanged_definitions: bool = option(
        kinds.boolean(),
        False,
        "Do not import that file again while it is as it was when it was last imported (RabbitMQ's"
        " definitions.skip_if_unchanged).",
    )
    definitions: Mapping[str, object] = option(
        kinds.document(),
        {},
        "Definitions to import at every start, written here: users, vhosts, permissions, policies and so on.",
        secret=True,
    )
    policies: tuple[Mapping[str, object], ...] = option(
        kinds.documents(), (), "Policies to set at every start, each as in a definitions file."
    )


OPTIONS: Final[Mapping[str, Option]] = declared(Settings)
"""Every option by its dotted name, in the order of declaration."""

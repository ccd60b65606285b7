"""Declarations of all options: the fields of `Settings`.

Names and meanings are those of rabbitmq.conf if it has the option. A new option is one more field here: file,
environment, command line and reference are derived from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.broker.config import kinds
from leveret.broker.config.auth import AuthCache, AuthHttp, AuthLdap, AuthOAuth2, auth_backends
from leveret.broker.config.declaration import (
    Option,
    declared,
    file_option,
    group,
    option,
    optional_text_option,
    password_option,
    switch_option,
    text_option,
)
from leveret.broker.config.kinds import Endpoint, ProductVersion, SyncRule
from leveret.broker.version import RABBITMQ_VERSION

_PORT: Final = kinds.integer(0, 65535)
_COUNT_MAX: Final = 2**31 - 1

#: RabbitMQ's names of the rules for passwords.
MIN_PASSWORD_LENGTH: Final = "rabbit_credential_validator_min_password_length"
PASSWORD_REGEXP: Final = "rabbit_credential_validator_password_regexp"
_ACCEPT_EVERYTHING: Final = "rabbit_credential_validator_accept_everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Where the log goes, and its form; its level is `log_level`."""

    file: Path | None = option(
        kinds.optional(kinds.path(), "none", "false"),
        None,
        "File to append the log to; it is opened again when it has been renamed, as logrotate does.",
        reloadable=True,
    )
    console: bool = switch_option("Write the log to stderr.", default=True, reloadable=True)
    formatter: str = option(
        kinds.choice("plaintext", "json"),
        "plaintext",
        "Form of the log: lines of text, or a JSON object in each line.",
        reloadable=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPermissions:
    """Permissions of the default user in the default vhost, as regular expressions for names."""

    # The empty pattern allows nothing.
    configure: str = text_option(
        "Regular expression for names that the default user may declare and delete.", default=".*"
    )
    write: str = text_option(
        "Regular expression for names that the default user may publish and bind to.", default=".*"
    )
    read: str = text_option(
        "Regular expression for names that the default user may consume and bind from.", default=".*"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialValidator:
    """Rules for the passwords of users that are added or changed; hashes are not checked."""

    validation_backend: str | None = option(
        kinds.optional(kinds.choice(_ACCEPT_EVERYTHING, MIN_PASSWORD_LENGTH, PASSWORD_REGEXP), "none"),
        None,
        "Which of the next two options counts, as in rabbitmq.conf; without it, each of them does.",
    )
    min_length: int = option(kinds.integer(0, 4096), 0, "Fewest bytes of a password.")
    regexp: str = text_option("Regular expression that passwords must match; empty for none.")
    refused_passwords: Path | None = file_option(
        "File of passwords that are refused in any case of letters, one in each line. It is read at the start."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHighWatermark:
    """Memory use above which the memory alarm blocks publishers."""

    relative: float = option(
        kinds.real(0.0, 1.0),
        0.4,
        "Memory use that sets the memory alarm, as a fraction of the machine's (or container's) memory.",
        reloadable=True,
    )
    absolute: int | None = option(
        kinds.optional(kinds.size(1, 2**63 - 1), "none"),
        None,
        "Memory use that sets the memory alarm; overrides `vm_memory_high_watermark.relative`.",
        reloadable=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFreeLimit:
    """Free disk space below which the disk alarm blocks publishers."""

    absolute: int = option(
        kinds.size(0, 2**63 - 1),
        50_000_000,
        "Free disk space below which the disk alarm is set; at least three segments and 32 MiB.",
        reloadable=True,
    )
    relative: float | None = option(
        kinds.optional(kinds.real(0.0, 1000.0), "none"),
        None,
        "Free disk space below which the disk alarm is set, as a fraction of the machine's (or container's) memory;"
        " overrides `disk_free_limit.absolute`.",
        reloadable=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSslOptions:
    """TLS between the nodes of a cluster, each of which has a certificate, and to etcd (`etcds://`)."""

    certfile: Path | None = file_option("PEM file of this node's certificate and its chain.")
    keyfile: Path | None = file_option("PEM file of this node's private key.")
    cacertfile: Path | None = file_option("PEM file of the authorities that the nodes' certificates are of.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """Standbys on other machines, which have everything that was confirmed and take over."""

    register: str = option(
        kinds.location(),
        "none",
        "Where the nodes of a cluster agree on who leads: `etcd://[USER:PASSWORD@]HOST:PORT[,HOST:PORT]/NAME`, or"
        " `etcds://…` with TLS; `kubernetes://NAMESPACE/NAME`, a Lease, in a pod; `none` for a broker alone.",
        secret=False,
    )
    node: str = text_option("Name of this node in the cluster; by default the host's name.")
    port: int = option(_PORT, 5679, "Port for the other nodes.")
    advertise: str = text_option(
        "Host, or HOST:PORT, at which the other nodes reach this one's replication port; by default the first host"
        " that it listens on, or the host's name."
    )
    secret: str = text_option(
        "Secret that all nodes of the cluster share; needed between machines unless `replication.ssl_options` is set.",
        secret=True,
    )
    lease: int = option(
        kinds.duration(2_000, 600_000, "ms"), 10_000, "Time after which a leader that is not heard of is replaced."
    )
    timeout: int = option(
        kinds.duration(100, 600_000, "ms"),
        3_000,
        "Time for which confirms wait for a standby that does not acknowledge, before it leaves the in-sync set.",
    )
    min_copies: int = option(
        kinds.integer(1, 100),
        2,
        "Nodes, the leader included, that must have what is confirmed; with fewer publishers are blocked. 1 to go on"
        " alone.",
    )
    backlog: int = option(
        kinds.size(1 << 20, 2**63 - 1),
        1 << 30,
        "Operations that are kept for standbys that were away; one that misses more gets a copy.",
    )
    sync_rate: int = option(
        kinds.size(0, 2**63 - 1), 0, "Rate at which a copy is sent to a standby, per second; 0 for no limit."
    )
    compression: bool = switch_option(
        "Whether what goes to standbys is compressed, as what goes to observers is: for links slower than the disks."
    )
    observer: bool = switch_option(
        "Whether this node has a copy that nobody waits for, for Spark and `leveret.scan` or at another site; it leads"
        " only after `leveretctl promote --force`."
    )
    ssl_options: ReplicationSslOptions = group(ReplicationSslOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class SslOptions:
    """TLS options of the listeners."""

    certfile: Path | None = file_option("PEM file of the broker's certificate and its chain.", reloadable=True)
    keyfile: Path | None = file_option("PEM file of the broker's private key.", reloadable=True)
    password: str | None = password_option(reloadable=True)
    cacertfile: Path | None = file_option(
        "PEM file of the authorities that client certificates are verified against.", reloadable=True
    )
    verify: str = option(
        kinds.choice("verify_none", "verify_peer"),
        "verify_none",
        "Request a client certificate and verify it (verify_peer), or not (verify_none).",
        reloadable=True,
    )
    fail_if_no_peer_cert: bool = switch_option(
        "Refuse clients without a certificate; requires verify_peer.", reloadable=True
    )
    versions: tuple[str, ...] = option(
        kinds.names("tlsv1.2", "tlsv1.3", empty=False),
        ("tlsv1.2", "tlsv1.3"),
        "TLS versions to support; older versions are not available.",
        reloadable=True,
    )
    ciphers: tuple[str, ...] = option(
        kinds.names(),
        (),
        "Cipher suites of TLS 1.2, with OpenSSL's names; none for OpenSSL's default.",
        reloadable=True,
    )
    honor_cipher_order: bool = switch_option(
        "Choose cipher suites in the broker's order instead of the client's.", reloadable=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Listeners for AMQP, if one port on all addresses of `host` is not enough."""

    tcp: tuple[Endpoint, ...] | None = option(
        kinds.endpoints(),
        None,
        'Addresses and ports for AMQP, such as `["127.0.0.1:5672", "[::1]:5672"]`; overrides `port`; none disables AMQP'
        " without TLS.",
    )
    ssl: tuple[Endpoint, ...] | None = option(
        kinds.endpoints(), None, "Addresses and ports for AMQP over TLS; overrides `amqps_port`."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpListenOptions:
    """Socket options of the AMQP listeners."""

    backlog: int = option(
        kinds.integer(1, 65535),
        1024,
        "Maximum number of connections waiting to be accepted; the system may allow fewer.",
    )
    nodelay: bool = switch_option("Send small packets at once (TCP_NODELAY).", default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compat:
    """Compatibility with clients that behave differently with RabbitMQ."""

    advertise: ProductVersion | None = option(
        kinds.optional(kinds.product(), "none"),
        ProductVersion("RabbitMQ", RABBITMQ_VERSION),
        "Product and version in connection.start, on which some clients base their behaviour; none for Leveret's own."
        " `platform` and `information` always name Leveret.",
    )
    quorum_queues: str = option(
        kinds.choice("3.10.8", "4.3"),
        "3.10.8",
        "Release of RabbitMQ that new quorum queues follow; existing ones stay as they are. 4.3: strict priorities 0 to"
        " 31 without `x-max-priority`, and `basic.nack` does not count toward the delivery limit.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Storage of messages on disk."""

    sync: SyncRule = option(
        kinds.sync_rule(),
        SyncRule("always"),
        "When messages are synced to the disk: before they are confirmed (always), at intervals without delaying"
        " confirms (interval), or when the system writes its cache (off). Without always, a power failure can lose"
        " confirmed messages.",
    )
    segment_size: int = option(
        kinds.size(65_536, 2**30),
        16_777_216,
        "Size of a segment file; a larger message gets a separate file. May be changed between starts (RabbitMQ's"
        " msg_store_file_size_limit).",
    )
    preload_messages: int = option(
        kinds.integer(0, _COUNT_MAX),
        16_384,
        "Maximum number of messages to load into memory when a queue stops being lazy; 0 for none.",
    )
    embed_bodies_below: int = option(
        kinds.size(0, 2**31 - 1),
        4096,
        "Size below which messages are loaded into memory when a queue stops being lazy; 0 for none (RabbitMQ's"
        " queue_index_embed_msgs_below).",
    )
    append_files: int = option(
        kinds.integer(1, _COUNT_MAX), 256, "Segment files to keep open for writing; the least recently used are closed."
    )
    read_files: int = option(
        kinds.integer(1, _COUNT_MAX), 128, "Segment files to keep open for reading; the least recently used are closed."
    )
    event_retention: int = option(
        kinds.duration(0, 2**53, "s"),
        604_800,
        "Time to keep the event log for analytics; it records deliveries, acknowledgements and other message events.",
    )
    reader_max_age: int = option(
        kinds.duration(1, 2**53, "s"),
        86_400,
        "Time after which a named reader of a streaming query is dropped if it is not seen: nothing is kept for it any"
        " more, and its query is told.",
    )
    reader_max_bytes: int = option(
        kinds.size(0, 2**60),
        2**30,
        "Maximum size of the segment files that are kept only because named readers have not read them; the oldest are"
        " removed above it, and the queries are told. Publishers never wait for readers.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The archiver, which copies messages and events to Parquet files."""

    url: str = option(
        kinds.location(),
        "",
        "Path or URL of an archive, such as s3://bucket/archive: the broker runs leveret-analytics archive, and starts"
        " it again when it ends; empty for none.",
    )
    interval: int = option(kinds.duration(1, 3600, "s"), 60, "Time from one copy to the next.")
    keep: int = option(kinds.duration(0, 86_400 * 36_500, "s"), 0, "How long rows stay in the archive; 0 for ever.")
    broker: str = text_option("Name of the broker in the archive; empty for the first part of the host's name.")
    iceberg: str = option(
        kinds.location(),
        "",
        "Catalog in which the archive's files are Iceberg tables: archive for one in the archive itself, the URL of a"
        " REST, Hive or SQL catalog, or a name in pyiceberg's configuration; empty for no tables.",
    )
    iceberg_namespace: str = option(kinds.text(), "leveret", "Namespace of these tables.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """Backups of the data directory, from which any moment can be restored."""

    url: str = option(
        kinds.location(),
        "",
        "Path or URL of the backups, such as s3://bucket/backup: the broker runs leveret backup, and starts it again"
        " when it ends; empty for none.",
    )
    interval: int = option(kinds.duration(1, 86_400 * 7, "s"), 900, "Time from one whole backup to the next.")
    log_interval: int = option(
        kinds.duration(1, 3600, "s"), 10, "How often what is new is sent meanwhile: a restore loses at most that."
    )
    keep: str = option(
        kinds.spans(),
        "24h,30d",
        "How long all backups are kept, and how long the first one of each day: two durations.",
    )
    key_file: Path | None = file_option("File with a key of 32 bytes, with which backups are encrypted.")
    take_on: str = option(
        kinds.choice("auto", "standby", "leader"),
        "auto",
        "Which node of a cluster takes them: an observer or standby if there is one, or always the leader. A directory"
        " must be one that all nodes share for the first; auto takes that for granted of URLs such as s3:// alone.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The audit log: who has done what, from where."""

    enabled: bool = switch_option("Keep an audit log in the data directory.", default=True)
    connections: bool = switch_option(
        "Log also what comes and goes with clients: connections, channels, consumers, successful logins, and exclusive"
        " queues with their bindings."
    )
    retention: int = option(
        kinds.duration(0, 86_400 * 36_500, "s"), 86_400 * 90, "How long the audit log is kept; 0 for ever."
    )
    max_bytes: int = option(
        kinds.size(0, 2**63 - 1), 1 << 30, "Size of the audit log above which its oldest part is removed; 0 for any."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventExchange:
    """The exchange `amq.rabbitmq.event`, which tells what is done as RabbitMQ's event exchange plugin does."""

    enabled: bool = switch_option(
        "Whether there is the exchange `amq.rabbitmq.event`; without bindings it costs nothing.", default=True
    )
    vhost: str | None = optional_text_option("Vhost that has the exchange; by default `default_vhost`.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sql:
    """SQL statements over what waits and what has come, in the web pages, leveretctl and the HTTP API."""

    concurrency: int = option(
        kinds.integer(0, 64), 2, "Statements that may run at the same time, each in a process; 0 switches SQL off."
    )
    timeout: int = option(kinds.duration(1, 3600, "s"), 60, "Time that a statement may take.")
    memory_limit: int = option(
        kinds.size(64 << 20, 1 << 40), 512 << 20, "Memory of a statement; Python needs about 200 MiB besides."
    )
    max_rows: int = option(kinds.integer(1, 2**31 - 1), 1_000_000, "Rows of a result.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """Metrics for Prometheus."""

    return_per_object_metrics: bool = switch_option(
        "Return metrics per queue, channel and connection at /metrics instead of sums; /metrics/per-object always"
        " returns them."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cors:
    """Cross-origin requests to the HTTP API."""

    allow_origins: tuple[str, ...] = option(
        kinds.names(), (), "Origins that may use the HTTP API, such as `https://console.example`; `*` for all."
    )
    max_age: int = option(
        kinds.duration(0, _COUNT_MAX, "s"), 1800, "Time for which browsers may cache the answer to a preflight request."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementHttp:
    """Limits of requests to the HTTP API."""

    max_body_size: int = option(
        kinds.size(1, 2**31 - 1),
        8_000_000,
        "Largest body of a request; a larger one is answered with 400. Uploads of definitions may always have up to 64"
        " MiB, login forms at most 64 kB.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Management:
    """Options of the HTTP API and the UI."""

    path_prefix: str = option(
        kinds.url_path(), "", "Prefix of all URL paths of the HTTP API and UI, such as `/broker`."
    )
    disable_stats: bool = switch_option("Omit statistics from all responses, as `?disable_stats=true` does for one.")
    enable_queue_totals: bool = switch_option("Include the message counts of queues even if statistics are disabled.")
    http_log_dir: Path | None = file_option(
        "Directory for the access log of the HTTP API: a line for each request in the common log format, in a file for"
        " each hour."
    )
    cors: Cors = group(Cors)
    http: ManagementHttp = group(ManagementHttp)
    oauth_enabled: bool = switch_option(
        "Let people log in to the UI at an OAuth 2 provider; needs `oauth2` in `auth_backends`."
    )
    oauth_client_id: str = text_option("What the UI is called at the provider.")
    oauth_client_secret: str = text_option("Secret of the UI at the provider; none for a public client.", secret=True)
    oauth_provider_url: str = text_option("URL of the provider, its issuer; by default `auth_oauth2.issuer`.")
    oauth_scopes: str = text_option("Scopes that the UI asks for, with spaces between.", default="openid profile")
    oauth_disable_basic_auth: bool = switch_option(
        "Take no names and passwords at the HTTP API and the UI while `management.oauth_enabled` is set, tokens only."
    )
    allowed_hosts: tuple[str, ...] = option(
        kinds.names(),
        (),
        "Host names under which a browser on this machine may log in as one of `loopback_users`, besides `localhost`,"
        " the machine's name and IP addresses; `*` for all. Other names are refused, as a malicious page could resolve"
        " its name to this machine and try passwords.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementAgent:
    """Collection of metrics for the HTTP API."""

    disable_metrics_collector: bool = switch_option(
        "Collect no samples for rates and histories, and omit statistics from all responses."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Configuration of a broker; `Settings()` has all defaults."""

    host: tuple[str, ...] = option(
        kinds.names(empty=False),
        ("0.0.0.0",),
        "Addresses to listen on; `::` for all IPv6 and IPv4 addresses.",
        flag="--host",
        metavar="H",
    )
    port: int = option(_PORT, 5672, "Port for AMQP; 0 for a free port.", flag="--port", metavar="N")
    amqps_port: int | None = option(
        kinds.optional(_PORT, "none"),
        None,
        "Port for AMQP over TLS, usually 5671; 0 for a free port.",
        flag="--amqps-port",
        metavar="N",
    )
    management_port: int = option(
        _PORT, 15672, "Port for the HTTP API and UI; 0 for a free port.", flag="--management-port", metavar="N"
    )
    management_tls_port: int | None = option(
        kinds.optional(_PORT, "none"),
        None,
        "Port for the HTTP API and UI over TLS, usually 15671; 0 for a free port.",
        flag="--management-tls-port",
        metavar="N",
    )
    prometheus_port: int = option(
        _PORT, 15692, "Port for Prometheus metrics; 0 for a free port.", flag="--prometheus-port", metavar="N"
    )
    data_dir: Path = option(
        kinds.path(), Path("leveret-data"), "Directory for all durable data.", flag="--data-dir", metavar="DIR"
    )
    log_level: str = option(
        kinds.choice("debug", "info", "warning", "error"),
        "info",
        "Minimum severity of logged messages.",
        reloadable=True,
        flag="--log-level",
        metavar="L",
    )
    log: Log = group(Log)
    cluster_name: str | None = option(
        kinds.optional(kinds.text()), None, "Cluster name that clients see; by default the node's name."
    )

    # Used for a new data directory only: an existing one keeps its users and vhosts.
    default_user: str = option(kinds.text(), "guest", "User to create in a new data directory.")
    default_pass: str = option(
        kinds.text(),
        "guest",
        "Password of the default user; `generate` makes one, which the log has once.",
        secret=True,
    )
    default_vhost: str = option(kinds.text(), "/", "Vhost to create in a new data directory.")
    default_user_tags: tuple[str, ...] = option(
        kinds.names(), ("administrator",), "Tags of the default user, which grant access to the HTTP API and UI."
    )
    default_permissions: DefaultPermissions = group(DefaultPermissions)
    credential_validator: CredentialValidator = group(CredentialValidator)

    loopback_users: tuple[str, ...] = option(
        kinds.names(), ("guest",), "Users that may connect from this machine only."
    )
    auth_mechanisms: tuple[str, ...] = option(
        kinds.names("PLAIN", "AMQPLAIN", "EXTERNAL", empty=False),
        ("PLAIN", "AMQPLAIN"),
        "SASL mechanisms to offer, in order; EXTERNAL is offered over TLS only.",
    )

    auth_backends: tuple[str, ...] = option(
        auth_backends(),
        ("internal",),
        "Who knows users, in this order: `internal` for the users of this broker, or other servers. Of a pair such as"
        " `http+internal` the first authenticates and the second authorizes.",
    )
    auth_cache: AuthCache = group(AuthCache)
    auth_http: AuthHttp = group(AuthHttp)
    auth_oauth2: AuthOAuth2 = group(AuthOAuth2)
    auth_ldap: AuthLdap = group(AuthLdap)

    heartbeat: int = option(
        kinds.duration(0, 65535, "s"), 60, "Heartbeat timeout to suggest to clients; 0 to suggest none."
    )
    frame_max: int = option(kinds.size(4096, 2**31 - 1), 131072, "Largest frame, framing included.")
    initial_frame_max: int = option(
        kinds.size(4096, 2**31 - 1),
        4096,
        "Largest frame before a client has logged in, framing included: tokens that are larger need more. RabbitMQ 3.10"
        " has no such option, and the same value.",
    )
    channel_max: int = option(
        kinds.integer(0, 65535), 2047, "Maximum number of channels per connection; 0 for no limit."
    )
    handshake_timeout: int = option(
        kinds.duration(1, _COUNT_MAX, "ms"), 10_000, "Time limit from the TCP connection to connection.open."
    )
    # The upper bound is RabbitMQ's too.
    max_message_size: int = option(
        kinds.size(1, 536870912), 134217728, "Largest message body; a larger one closes its channel with 406."
    )
    trust_publisher_x_death: bool = switch_option(
        "Take account of an x-death header from a publisher when the message is dead-lettered, as RabbitMQ 3.10 does;"
        " RabbitMQ 4.0, and Leveret by default, ignore it."
    )
    consumer_timeout: int | None = option(
        kinds.optional(kinds.duration(1, 2**53, "ms"), "false", "infinity", "0"),
        1_800_000,
        "Time after which the channel of an unacknowledged delivery is closed with 406, if neither the consumer nor its"
        " queue has a timeout of its own.",
    )
    consumer_max_per_channel: int | None = option(
        kinds.optional(kinds.integer(1, _COUNT_MAX), "none", "infinity"),
        None,
        "Maximum number of consumers per channel.",
    )
    channel_max_per_node: int | None = option(
        kinds.optional(kinds.integer(1, _COUNT_MAX), "none", "infinity", "0"),
        None,
        "Maximum number of channels of all connections together.",
    )
    connection_max: int | None = option(
        kinds.optional(kinds.integer(0, _COUNT_MAX), "none", "infinity"), None, "Maximum number of open connections."
    )
    vm_memory_high_watermark: MemoryHighWatermark = group(MemoryHighWatermark)
    vm_memory_high_watermark_paging_ratio: float = option(
        kinds.real(0.0, 1.0),
        0.5,
        "Memory use above which queues page messages out to disk, as a fraction of the memory watermark.",
        reloadable=True,
    )
    disk_free_limit: DiskFreeLimit = group(DiskFreeLimit)
    listeners: Listeners = group(Listeners)
    tcp_listen_options: TcpListenOptions = group(TcpListenOptions)
    proxy_protocol: bool = switch_option(
        "Expect a PROXY protocol header, version 1 or 2, at the start of every AMQP connection; it contains the"
        " client's address."
    )
    ssl_options: SslOptions = group(SslOptions)
    ssl_handshake_timeout: int = option(kinds.duration(1, _COUNT_MAX, "ms"), 5_000, "Time limit of the TLS handshake.")
    ssl_cert_login_from: str = option(
        kinds.choice("distinguished_name", "common_name", "subject_alternative_name"),
        "distinguished_name",
        "Part of the client certificate that is the user name for the mechanism EXTERNAL.",
    )
    shutdown_timeout: int = option(
        kinds.duration(0, _COUNT_MAX, "ms"),
        10_000,
        "Time limit of a clean stop; connections that are still open are then closed at once.",
    )

    storage: Storage = group(Storage)
    archive: Archive = group(Archive)
    backup: Backup = group(Backup)
    sql: Sql = group(Sql)
    replication: Replication = group(Replication)
    compat: Compat = group(Compat)
    event_exchange: EventExchange = group(EventExchange)
    audit: Audit = group(Audit)
    management: Management = group(Management)
    management_agent: ManagementAgent = group(ManagementAgent)
    prometheus: Prometheus = group(Prometheus)

    load_definitions: Path | None = option(
        kinds.optional(kinds.path(), "none"),
        None,
        "JSON file of definitions to import at every start, as exported by RabbitMQ. If it contains users, no default"
        " user is created in a new data directory; the same holds for vhosts.",
        flag="--import-definitions",
        metavar="FILE",
    )
    skip_unchanged_definitions: bool = switch_option(
        "Skip the import of `load_definitions` if the file has not changed since its last import (RabbitMQ's"
        " definitions.skip_if_unchanged)."
    )
    definitions: Mapping[str, object] = option(
        kinds.document(),
        {},
        "Definitions to import at every start: users, vhosts, permissions, policies and so on.",
        secret=True,
    )
    policies: tuple[Mapping[str, object], ...] = option(
        kinds.documents(), (), "Policies to set at every start, in the form of a definitions file."
    )
    shovels: Mapping[str, object] = option(
        kinds.document(),
        {},
        "Static shovels: by name, a mapping with the keys of a dynamic shovel; see [Shovels](shovels.md).",
        secret=True,
    )
    bodies: Mapping[str, object] = option(
        kinds.document(),
        {},
        "What the bodies of queues are: rules by name; see [Bodies](bodies.md).",
        secret=True,
    )


OPTIONS: Final[Mapping[str, Option]] = declared(Settings)
"""All options by dotted name, in the order of declaration."""


def is_group(name: str) -> bool:
    """Return whether there is a group of this name."""
    return bool(members(name))


def members(group: str) -> list[str]:
    """Return the dotted names of the options in a group: a group is what is before the last dot."""
    return [name for name in OPTIONS if name.startswith(f"{group}.")]

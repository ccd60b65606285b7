"""Commands of RabbitMQ that Leveret does not have, with the reasons."""

from __future__ import annotations

from typing import Final

_CLUSTER: Final = "Leveret is always a single node"
_ERLANG: Final = "Leveret does not use Erlang"
_MIRRORS: Final = "there are no mirrored queues"
_PROCESS: Final = "start and stop the broker process; SIGTERM stops it"
_CONFIGURATION: Final = "the HTTP API cannot change the configuration; set the option and restart the broker"
_SECRETS: Final = "values in the configuration are not encrypted"
_MACHINE: Final = "use the tools of the broker's machine"
_TLS: Final = "the HTTP API has no TLS details except for check_certificate_expiration"

UNSUPPORTED: Final = {
    "cancel_sync_queue": _MIRRORS,
    "certificates": _TLS,
    "change_cluster_node_type": _CLUSTER,
    "cipher_suites": _TLS,
    "command_line_arguments": _MACHINE,
    "consume_event_stream": "the HTTP API has no event stream",
    "decode": _SECRETS,
    "disable_auth_attempt_source_tracking": _CONFIGURATION,
    "discover_peers": _CLUSTER,
    "enable_auth_attempt_source_tracking": _CONFIGURATION,
    "encode": _SECRETS,
    "erlang_cookie_hash": _ERLANG,
    "erlang_cookie_sources": _ERLANG,
    "eval": _ERLANG,
    "eval_file": _ERLANG,
    "exec": _ERLANG,
    "force_boot": _CLUSTER,
    "force_gc": _ERLANG,
    "force_reset": "stop the broker and remove its data directory",
    "forget_cluster_node": _CLUSTER,
    "hipe_compile": _ERLANG,
    "join_cluster": _CLUSTER,
    "list_ciphers": _SECRETS,
    "list_hashes": _SECRETS,
    "list_network_interfaces": _MACHINE,
    "list_unresponsive_queues": "queues cannot become unresponsive one by one; try list_queues",
    "log_tail": "the log goes to the broker's standard error",
    "log_tail_stream": "the log goes to the broker's standard error",
    "maybe_stuck": _ERLANG,
    "observer": _ERLANG,
    "os_env": _MACHINE,
    "quorum_status": "a quorum queue has one member; see list_queues name leader members",
    "reclaim_quorum_memory": _ERLANG,
    "remote_shell": _ERLANG,
    "rename_cluster_node": _CLUSTER,
    "reset": "stop the broker and remove its data directory",
    "resolve_hostname": _MACHINE,
    "resolver_info": _MACHINE,
    "resume_listeners": "the HTTP API does not open and close listeners",
    "rotate_logs": "the log goes to the broker's standard error",
    "runtime_thread_stats": _ERLANG,
    "schema_info": _ERLANG,
    "set_disk_free_limit": _CONFIGURATION,
    "set_log_level": _CONFIGURATION,
    "set_vm_memory_high_watermark": _CONFIGURATION,
    "shutdown": _PROCESS,
    "start_app": _PROCESS,
    "stop": _PROCESS,
    "stop_app": _PROCESS,
    "stream_status": "there are no streams",
    "suspend_listeners": "the HTTP API does not open and close listeners",
    "sync_queue": _MIRRORS,
    "tls_versions": _TLS,
    "update_cluster_nodes": _CLUSTER,
    "wait": "there is no pid file; use await_startup",
}

"""Common reply texts of close methods; `vhost` is the tested virtual host."""

from __future__ import annotations

from typing import Final

DEFAULT_EXCHANGE: Final = "ACCESS_REFUSED - operation not permitted on the default exchange"
NO_LAST_QUEUE: Final = "NOT_FOUND - no previously declared queue"


def cut(text: str) -> str:
    """Shorten a reply text as the broker does: 252 bytes and an ellipsis when it has more than 255 (0.12)."""
    data = text.encode()
    return text if len(data) <= 255 else data[:252].decode() + "..."


def no_queue(name: str, vhost: str) -> str:
    return cut(f"NOT_FOUND - no queue '{name}' in vhost '{vhost}'")


def no_exchange(name: str, vhost: str) -> str:
    return cut(f"NOT_FOUND - no exchange '{name}' in vhost '{vhost}'")


def locked(queue: str, vhost: str) -> str:
    """405: a queue that is exclusive to another connection, or declared with other exclusivity."""
    return cut(
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '{vhost}'."
        " It could be originally declared on another connection or the exclusive property value does not"
        " match that of the original declaration."
    )


def refused(kind: str, name: str, vhost: str, user: str) -> str:
    """403: no permission on a queue or an exchange."""
    return cut(f"ACCESS_REFUSED - access to {kind} '{name}' in vhost '{vhost}' refused for user '{user}'")


def exclusive_use(queue: str, vhost: str) -> str:
    """403: the queue has an exclusive consumer, or has consumers when an exclusive one is requested."""
    return cut(f"ACCESS_REFUSED - queue '{queue}' in vhost '{vhost}' in exclusive use")


def inequivalent(argument: str, resource: str, vhost: str, received: str, current: str) -> str:
    """406: redeclared with a different property or argument."""
    return cut(
        f"PRECONDITION_FAILED - inequivalent arg '{argument}' for {resource} in vhost '{vhost}':"
        f" received {received} but current is {current}"
    )


def invalid_argument(key: str, queue: str, vhost: str, reason: str) -> str:
    """406: an invalid queue or consumer argument."""
    return cut(f"PRECONDITION_FAILED - invalid arg '{key}' for queue '{queue}' in vhost '{vhost}'{reason}")


def unknown_tag(tag: int) -> str:
    return f"PRECONDITION_FAILED - unknown delivery tag {tag}"

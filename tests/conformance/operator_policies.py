"""Policies and operator policies for the queues and exchanges of one test; removed after it."""

from __future__ import annotations

import re
import uuid
from types import TracebackType
from typing import Any

from tests.conformance.http_api import HttpApi, Reply, path
from tests.conformance.topology import fill
from tests.support.management import Management
from tests.support.wire import Channel

USER = "policies"
OPERATOR = "operator-policies"
KINDS = [USER, OPERATOR]
#: A policy of this process, and a pattern for it that matches nothing.
NAME = f"conformance.{uuid.uuid4().hex[:12]}"
PATTERN = "^conformance\\.nothing$"


def only(*names: str) -> str:
    """Return a pattern that matches only these names."""
    return f"^(?:{'|'.join(re.escape(name) for name in names)})$"


def of(definition: Any, **others: Any) -> dict[str, Any]:
    return {"pattern": PATTERN, "definition": definition, **others}


def check(answer: Reply, status: int, document: Any) -> None:
    assert (answer.status, answer.document) == (status, document), f"{(status, document)} expected, got {answer}"


def refusal(reason: str, kind: str = USER) -> dict[str, str]:
    """Return the response to an invalid policy; it is escaped for HTML only for user policies."""
    if kind == USER:
        reason = reason.replace("<", "&lt;").replace(">", "&gt;")
    return {"error": "bad_request", "reason": f"Validation failed\n\n{reason}\n"}


class PolicySet:
    """Creates policies; a context manager that removes them."""

    def __init__(self, management: Management, vhost: str) -> None:
        self.api = HttpApi(management)
        self.vhost = vhost
        self.made: dict[tuple[str, str], None] = {}

    def __enter__(self) -> PolicySet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for kind_, name in list(self.made):
            self.clear(name, kind_)

    def put(self, name: str, body: Any, kind: str = USER) -> Reply:
        """PUT any body under a name and return the response; the policy is removed at the end."""
        self.made[kind, name] = None
        return self.api.ask("PUT", path(kind, self.vhost, name), body)

    def set(
        self,
        pattern: str,
        definition: dict[str, Any],
        *,
        name: str | None = None,
        priority: float = 0,
        apply_to: str = "all",
        kind: str = USER,
    ) -> str:
        """Create or replace a policy; return its name, by default a new one."""
        name = name or f"conformance.{uuid.uuid4().hex[:12]}"
        body = {"pattern": pattern, "definition": definition, "priority": priority, "apply-to": apply_to}
        answer = self.put(name, body, kind)
        assert answer.status in (201, 204), answer
        return name

    def operator(self, pattern: str, definition: dict[str, Any], **options: Any) -> str:
        """Create or replace an operator policy; otherwise like `set`."""
        return self.set(pattern, definition, kind=OPERATOR, **options)

    def clear(self, name: str, kind: str = USER) -> None:
        answer = self.api.ask("DELETE", path(kind, self.vhost, name))
        assert answer.status in (204, 404), answer
        self.made.pop((kind, name), None)


def kept(channel: Channel, queue: str, published: int = 10) -> int:
    """Empty a queue, publish this many messages of one byte to it and return how many stay; they are purged."""
    channel.queue_purge(queue)
    fill(channel, queue, *([b"x"] * published))
    # A purge waits for all earlier publishes; RabbitMQ may reply to a passive declare before them.
    stayed: int = channel.queue_purge(queue).message_count
    return stayed

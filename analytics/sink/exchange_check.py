"""Says what stands in the way of publishing each row exactly once: Spark repeats tasks and batches that have failed."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from leveret.analytics.sink.connection import SinkError
from leveret.analytics.sink.options import SinkOptions
from leveret.analytics.sink.rows import RowLayout

_TYPE: Final = "x-message-deduplication"
_SECONDS: Final = 10.0
_TWICE: Final = "publishes some of them twice"
_AT_LEAST_ONCE: Final = "what Spark repeats after a failure is published twice"


class ExchangeCheck(NamedTuple):
    """What is known about an exchange.

    Attributes:
        obstacles: Why rows may be published more than once; empty if nothing stands in the way.
        size: How many values it remembers; None if it does not say.
    """

    obstacles: tuple[str, ...]
    size: int | None = None

    def after(self, rows: int) -> list[str]:
        """Return why rows may be published more than once, now that their number is known."""
        if self.size is None or rows <= self.size:
            return []
        return [f"the exchange remembers {self.size} values, and {rows} rows were published: a repetition {_TWICE}"]


def check_exchange(options: SinkOptions, layout: RowLayout) -> ExchangeCheck:
    """Ask the broker whether an exchange drops what is published a second time.

    Args:
        options: Options of the sink.
        layout: The columns.
    Raises:
        SinkError: It would drop what had no queue the first time.
    """
    if not layout.key:
        needed = "add a column key, or keep queue_id, store_priority and seq"
        return ExchangeCheck((f"rows have no key, so {_AT_LEAST_ONCE}; {needed}",))
    if not options.exchange:
        where = f"publish to an exchange of type {_TYPE}"
        return ExchangeCheck((f"the default exchange drops no duplicates, so {_AT_LEAST_ONCE}; {where}",))
    try:
        exchange = _get(options, "exchanges", options.exchange)
        policy = exchange.get("policy")
        settings = {**exchange["arguments"], **(_get(options, "policies", policy)["definition"] if policy else {})}
        found = [f"exchange '{options.exchange}' {reason}" for reason in _reasons(exchange, settings)]
        bindings = _get(options, "exchanges", options.exchange, "/bindings/source")
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        reason = f"{options.api!r} does not say: {error}; set managementUrl"
        return ExchangeCheck((f"it is unknown whether exchange '{options.exchange}' drops duplicates ({reason})",))
    if _drops_duplicates(exchange, settings) and not bindings and "alternate-exchange" not in settings:
        # What is published comes back, and its value is remembered: next time it would be dropped, and confirmed.
        raise SinkError(f"exchange '{options.exchange}' drops duplicates and leads to no queue: bind a queue first")
    size = settings.get("x-cache-size")
    return ExchangeCheck(tuple(found), size if isinstance(size, int) else None)


def _reasons(exchange: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[str]:
    if not _drops_duplicates(exchange, settings):
        yield f"is of type {exchange['type']} and drops no duplicates, so {_AT_LEAST_ONCE}"
        return
    if not exchange["durable"] or settings.get("x-cache-persistence") != "disk":
        yield "forgets its values when the broker restarts; declare it durable, with x-cache-persistence disk"
    if settings.get("x-cache-ttl"):
        yield f"remembers values for {settings['x-cache-ttl']} ms only; repeat a query that has failed within that time"


def _drops_duplicates(exchange: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    return _TYPE in (exchange["type"], settings.get("x-delayed-type"))


def _get(options: SinkOptions, kind: str, name: str, part: str = "") -> Any:
    server, api = options.server, options.api
    path = "/".join(quote(each, safe="") for each in (kind, server.vhost, name)) + part
    login = base64.b64encode(f"{api.user}:{api.password}".encode()).decode()
    request = urllib.request.Request(f"{api.url}/api/{path}", headers={"Authorization": f"Basic {login}"})
    context = ssl.create_default_context(cafile=server.ca_file) if server.ca_file else None
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS, context=context) as response:
            return json.loads(response.read())
    except urllib.error.HTTPError as error:
        error.close()
        raise

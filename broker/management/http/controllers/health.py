"""Health checks with RabbitMQ's paths and responses, and the aliveness test.

Source: https://www.rabbitmq.com/docs/monitoring#health-checks
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from aiohttp import web

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.management.http.access import http_origin
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.documents.overview import listeners
from leveret.broker.management.http.responses import bad_request, json_response, not_found
from leveret.broker.operations import queues
from leveret.broker.operations.principal import Principal
from leveret.broker.operations.publishing import publish
from leveret.broker.tls import valid_until
from leveret.protocol.properties import encode_content_header

#: Names of protocols that clients use, with the protocol name of the listener.
_PROTOCOLS: Final = {
    **dict.fromkeys(("amqp", "amqp091", "amqp0.9.1", "amqp0-9-1", "amqp-0-9-1", "amqp10", "amqp1.0"), "amqp"),
    **dict.fromkeys(("amqps", "amqp/ssl", "amqp/tls", "amqp091/ssl", "amqp0.9.1/ssl"), "amqp/ssl"),
}
#: Units of time in days.
_UNITS: Final = {"days": 1, "weeks": 7, "months": 30, "years": 365}
_ENCRYPTED: Final = frozenset(("amqp/ssl", "https"))
#: Checks that hold while the broker responds, most of them of newer releases.
_HOLDING: Final = ("virtual-hosts", "is-in-service", "ready-to-serve-clients", "below-node-connection-limit")
_OK: Final = {"status": "ok"}
_SINGLE: Final = {"status": "ok", "reason": "single node cluster"}
_QUEUE: Final = "aliveness-test"
_BODY: Final = b"test_message"


class Probes(Controller):
    """Checks that need no login and say nothing but yes or no: of the process, and of who leads."""

    @route("GET", "/health/live")
    async def live(self, request: web.Request) -> web.Response:
        """Respond with 200: whoever answers is alive."""
        return _yes_or_no(True)

    @route("GET", "/health/ready")
    async def ready(self, request: web.Request) -> web.Response:
        """Respond with 200 if clients are served; with 503 while the broker starts or stops."""
        return _yes_or_no(self._context.node.is_serving)

    @route("GET", "health/checks/leader")
    async def leader(self, request: web.Request) -> web.Response:
        """Respond with 200: a standby of a cluster answers this itself."""
        return json_response(_OK)


def _yes_or_no(answer: bool) -> web.Response:
    return web.Response(status=200 if answer else 503, text="yes\n" if answer else "no\n")


class HealthChecks(Controller):
    """The resources below ``/api/health/checks``, for all users."""

    @route("GET", "health/checks/alarms", "health/checks/local-alarms")
    async def alarms(self, request: web.Request) -> web.Response:
        """Respond with 200 if no resource alarm is set, 503 otherwise."""
        self._access.login(request)
        resources = sorted(self._broker.alarms.resources)
        if not resources:
            return json_response(_OK)
        alarms = [{"node": self._context.node.name, "resource": resource} for resource in resources]
        return _failed("There are alarms in effect in the cluster", alarms=alarms)

    @route("GET", "health/checks/certificate-expiration/{within}/{unit}")
    async def certificates(self, request: web.Request) -> web.Response:
        """Respond with 200 if no certificate of a listener expires within a time, 503 otherwise."""
        self._access.login(request)
        days = _UNITS.get(request.match_info["unit"])
        if days is None:
            raise bad_request("Time unit not recognised. Supported units: days, weeks, months, years.")
        try:
            limit = datetime.now(UTC) + timedelta(days=days * int(request.match_info["within"]))
        except (ValueError, OverflowError):
            raise bad_request("Invalid expiration value.") from None
        expired = await asyncio.get_running_loop().run_in_executor(None, self._expiring, limit)
        return _failed("Certificates expiring", expired=expired) if expired else json_response(_OK)

    def _expiring(self, limit: datetime) -> list[dict[str, Any]]:
        """Return the encrypted listeners if one of their certificates expires before a time."""
        encrypted = [each for each in listeners(self._context.node) if each["protocol"] in _ENCRYPTED]
        options = self._context.settings.ssl_options
        files = {"certfile": options.certfile, "cacertfile": options.cacertfile} if encrypted else {}
        found: dict[str, Any] = {}
        soonest = limit
        for name, path in files.items():
            if path is not None:
                times = valid_until(path)
                found |= {name: str(path), f"{name}_expires_on": [time.isoformat() for time in times]}
                soonest = min([soonest, *times])
        return [{**each, **found} for each in encrypted] if soonest < limit else []

    @route("GET", "health/checks/port-listener/{port}")
    async def port(self, request: web.Request) -> web.Response:
        """Respond with 200 if the broker listens on a port, 503 otherwise."""
        self._access.login(request)
        try:
            port = int(request.match_info["port"])
        except ValueError:
            raise bad_request("Invalid port") from None
        ports = [listener["port"] for listener in listeners(self._context.node)]
        if port in ports:
            return json_response({"status": "ok", "port": port})
        return _failed("No active listener", missing=port, ports=ports)

    @route("GET", "health/checks/protocol-listener/{protocol:.+?}")
    async def protocol(self, request: web.Request) -> web.Response:
        """Respond with 200 if the broker has a listener for a protocol, 503 otherwise."""
        self._access.login(request)
        asked = request.match_info["protocol"]
        protocol = _PROTOCOLS.get(asked.lower(), asked)
        protocols = [listener["protocol"] for listener in listeners(self._context.node)]
        if protocol in protocols:
            return json_response({"status": "ok", "protocol": protocol})
        return _failed("No active listener", missing=protocol, protocols=protocols)

    @route("GET", *(f"health/checks/{check}" for check in _HOLDING))
    async def always_ok(self, request: web.Request) -> web.Response:
        """Respond with 200: the check holds while the broker responds."""
        self._access.login(request)
        return json_response(_OK)

    @route("GET", "health/checks/node-is-quorum-critical", "health/checks/node-is-mirror-sync-critical")
    async def single_node(self, request: web.Request) -> web.Response:
        """Respond with 200: the check is about other nodes, and there are none."""
        self._access.login(request)
        return json_response(_SINGLE)

    # A check of older releases.
    @route("GET", "healthchecks/node", "healthchecks/node/{node}")
    async def node(self, request: web.Request) -> web.Response:
        """Respond with 200: the node responds."""
        self._access.login(request)
        if request.match_info.get("node", self._context.node.name) != self._context.node.name:
            raise not_found()
        return json_response(_OK)


def _failed(reason: str, **findings: Any) -> web.Response:
    return json_response({"status": "failed", "reason": reason, **findings}, status=503)


class Aliveness(Controller):
    """The resource ``/api/aliveness-test``."""

    @route("GET", "aliveness-test/{vhost}", tag="management")
    async def test(self, request: web.Request) -> web.Response:
        """Declare a queue, publish to it and get the message back, with the permissions of the user."""
        if request.match_info["vhost"] not in self._broker.vhosts:
            raise not_found()
        principal = self._access.require_connect(request)
        principal.check("configure", "queue", _QUEUE)
        principal.check("write", "exchange", "")
        principal.check("read", "queue", _QUEUE)
        body = _publish_and_get(principal)
        if body != _BODY:
            return json_response({"status": "failed", "reason": "the published message is missing"}, status=503)
        return json_response({"status": "ok"})


def _publish_and_get(principal: Principal) -> bytes | None:
    queue = queues.declare(principal, _QUEUE, False, False, ())
    publish(principal, "", _QUEUE, encode_content_header(len(_BODY)), _BODY, http_origin(principal.user))
    # A stream of this name could not have been declared so.
    assert isinstance(queue, ClassicQueue)
    entry = queues.get(queue, None, principal.vhost.statistics.channels)
    return None if entry is None else entry[1].body

"""A register in etcd 3.4 or newer, by its JSON gateway.

Two keys: NAME/state has the state, and NAME/leader the name of the leader, which etcd removes when its lease has run
out.
"""

from __future__ import annotations

import json
import logging
import math
import ssl
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import aiohttp

from leveret.broker.replication.register import HttpRegister, Reading, RegisterError, State, read_state

_LOG: Final = logging.getLogger("leveret.replication")


class EtcdRegister(HttpRegister):
    """Implementation of Register by etcd. Used by one event loop.

    Args:
        endpoints: Host and port of its members; the first that answers is used.
        name: Name of the cluster.
        node: Name of this node.
        lease: Seconds after which a claim that is not renewed ends; etcd may make it longer.
        login: User and password; None without.
        tls: Encrypts the connections; None for no encryption.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        name: str,
        node: str,
        lease: float,
        login: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(lease, tls)
        self._urls = [f"http{'s' if tls else ''}://{each}" for each in endpoints]
        self._state, self._leader = f"{name}/state", f"{name}/leader"
        self._node = node
        self._ttl = max(1, math.ceil(lease))
        self._login = login
        self._token = ""
        #: ID of the lease of the own claim; "" without one.
        self._lease_id = ""

    async def read(self) -> Reading:
        """Return what etcd says, by one transaction."""
        found = await self._post("/v3/kv/txn", {"success": [_range(self._state), _range(self._leader)]})
        try:
            state, leader = (each["response_range"].get("kvs", []) for each in found["responses"])
        except (KeyError, ValueError, TypeError) as error:
            raise RegisterError(f"etcd answers {found!r}") from error
        return Reading(
            read_state(_decode(state[0]["value"])) if state else None,
            int(state[0]["mod_revision"]) if state else 0,
            _decode(leader[0]["value"]) if leader else "",
        )

    async def write(self, state: State, revision: int) -> int | None:
        """Replace the state if its revision is this one."""
        return await self._transact([self._is_at(revision)], [_put(self._state, state.to_json())])

    async def claim(self, state: State, revision: int) -> int | None:
        """Replace the state and claim the leadership."""
        granted = await self._post("/v3/lease/grant", {"TTL": str(self._ttl)})
        lease = str(granted["ID"])
        put = [_put(self._state, state.to_json()), _put(self._leader, self._node, lease)]
        unclaimed = {"key": _encode(self._leader), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
        mine = {"key": _encode(self._leader), "target": "VALUE", "result": "EQUAL", "value": _encode(self._node)}
        for condition in (unclaimed, mine):
            written = await self._transact([self._is_at(revision), condition], put)
            if written is not None:
                self._lease_id = lease
                return written
        with suppress(RegisterError):
            await self._post("/v3/lease/revoke", {"ID": lease})
        return None

    async def renew(self) -> bool:
        """Extend the lease of the own claim."""
        if not self._lease_id:
            return False
        found = await self._post("/v3/lease/keepalive", {"ID": self._lease_id})
        return int(found.get("result", {}).get("TTL", 0)) > 0

    async def resign(self, state: State | None = None, revision: int = 0) -> int | None:
        """Give up the own claim."""
        delete = {"request_delete_range": {"key": _encode(self._leader)}}
        mine = {"key": _encode(self._leader), "target": "VALUE", "result": "EQUAL", "value": _encode(self._node)}
        conditions: list[Mapping[str, str]] = [mine]
        changes: list[object] = [delete]
        if state is not None:
            conditions.append(self._is_at(revision))
            changes.append(_put(self._state, state.to_json()))
        written = await self._transact(conditions, changes)
        self._lease_id = ""
        return written

    def _is_at(self, revision: int) -> Mapping[str, str]:
        return {"key": _encode(self._state), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}

    async def _transact(self, conditions: Sequence[Mapping[str, str]], changes: Sequence[object]) -> int | None:
        """Make changes if conditions hold; return the revision of the changes."""
        found = await self._post("/v3/kv/txn", {"compare": conditions, "success": changes})
        return int(found["header"]["revision"]) if found.get("succeeded") else None

    async def _watch_once(self) -> None:
        """Set the event with each change of a key below the name."""
        prefix = self._state.removesuffix("state")
        asked = {"create_request": {"key": _encode(prefix), "range_end": _encode(prefix[:-1] + "0")}}
        for url in [*self._urls]:
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with self._open().post(
                    f"{url}/v3/watch",
                    json=asked,
                    headers=self._headers(),
                    timeout=self._watch_timeout(),
                    ssl=self._tls or True,
                ) as response:
                    await self._note_changes(response)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": self._token} if self._token else {}

    async def _post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Return the answer to a request of the first member that gives one.

        Raises:
            RegisterError: None does.
        """
        reasons: list[str] = []
        for url in [*self._urls]:
            try:
                if self._login is not None and not self._token:
                    await self._authenticate(url)
                status, found = await self._ask(url, path, body)
                if status == 401 and self._login is not None:
                    await self._authenticate(url)
                    status, found = await self._ask(url, path, body)
                if status == 200:
                    if url is not self._urls[0]:
                        # The one that answers is asked first.
                        self._urls.remove(url)
                        self._urls.insert(0, url)
                    return found
                if status in (404, 412) and path.startswith("/v3/lease/"):
                    return {}
                reasons.append(f"{url}: {found.get('message') or found.get('error') or status}")
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                reasons.append(f"{url}: {str(error) or type(error).__name__}")
        raise RegisterError(f"etcd cannot be asked: {'; '.join(reasons)}")

    async def _ask(self, url: str, path: str, body: Mapping[str, object]) -> tuple[int, dict[str, Any]]:
        timeout = aiohttp.ClientTimeout(total=self._timeout, sock_connect=self._timeout / 2)
        async with self._open().post(
            url + path, json=body, headers=self._headers(), timeout=timeout, ssl=self._tls or True
        ) as response:
            # A renewal is a stream with one line.
            found = json.loads(await response.content.readline() if response.status == 200 else await response.read())
            if not isinstance(found, dict):
                raise ValueError("it does not answer with a JSON object")
            return response.status, found

    async def _authenticate(self, url: str) -> None:
        assert self._login is not None
        name, password = self._login
        status, found = await self._ask(url, "/v3/auth/authenticate", {"name": name, "password": password})
        if status != 200 or "token" not in found:
            raise ValueError(found.get("message") or "it refuses the user and password of replication.register")
        self._token = str(found["token"])


def _encode(text: str) -> str:
    return b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return b64decode(text).decode()


def _range(key: str) -> dict[str, object]:
    return {"request_range": {"key": _encode(key)}}


def _put(key: str, value: str, lease: str = "") -> dict[str, object]:
    return {"request_put": {"key": _encode(key), "value": _encode(value), **({"lease": lease} if lease else {})}}

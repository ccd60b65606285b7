"""A register in a Lease of Kubernetes (coordination.k8s.io/v1), with the token of the pod.

The state is an annotation of the Lease, beside a number that each change of the state increments. All changes replace
the object on condition that its resourceVersion is still the one that was read. The claim is the Lease's holder. When
it has run out nobody asks a clock of another machine: it has if the Lease has not changed for its duration.
"""

from __future__ import annotations

import asyncio
import json
import math
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from leveret.broker.replication.register import HttpRegister, Reading, RegisterError, State, read_state

#: Where a pod finds its token and the authority of the API server.
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_STATE: Final = "leveret/state"
_REVISION: Final = "leveret/revision"
#: Attempts of one change while others change the same object, for example renew the claim.
_TRIES: Final = 10
#: What a change makes of the Lease; None if it is not to be changed.
_Change = Callable[[dict[str, Any]], "dict[str, Any] | None"]


class _Claim(NamedTuple):
    """A claim as it was seen."""

    holder: str
    renewed: str
    #: Seconds.
    duration: float


class KubernetesRegister(HttpRegister):
    """Implementation of Register by a Lease. Used by one event loop.

    Args:
        server: URL of the API server.
        namespace: Namespace of the Lease.
        name: Its name; it is created if it does not exist.
        node: Name of this node.
        lease: Seconds after which a claim that is not renewed ends.
        account: Directory with the files `token`, which is read again for each request, and `ca.crt`.
        tls: Encrypts the connections; None for no encryption.
    """

    def __init__(
        self,
        server: str,
        namespace: str,
        name: str,
        node: str,
        lease: float,
        account: Path = ACCOUNT,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(lease, tls)
        self._leases = f"{server}/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._url = f"{self._leases}/{name}"
        self._name = name
        self._node = node
        self._duration = max(1, math.ceil(lease))
        self._token = account / "token"
        #: The claim of another node that was seen last, and since when.
        self._seen = _Claim("", "", 0)
        self._seen_at = 0.0

    async def read(self) -> Reading:
        """Return what the Lease says."""
        found = await self._get()
        if found is None:
            return Reading(None, 0, "")
        text = _notes(found).get(_STATE)
        return Reading(None if text is None else read_state(text), _revision(found), self._holder(found))

    async def write(self, state: State, revision: int) -> int | None:
        """Replace the state if its revision is this one."""

        def change(lease: dict[str, Any]) -> dict[str, Any] | None:
            return lease if _set_state(lease, state, revision) else None

        return await self._change(change, revision)

    async def claim(self, state: State, revision: int) -> int | None:
        """Replace the state and claim the leadership."""

        def change(lease: dict[str, Any]) -> dict[str, Any] | None:
            if self._holder(lease) not in ("", self._node) or not _set_state(lease, state, revision):
                return None
            spec = lease.setdefault("spec", {})
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (
                spec.get("holderIdentity") != self._node
            )
            spec["acquireTime"] = spec["renewTime"] = _now()
            spec |= {"holderIdentity": self._node, "leaseDurationSeconds": self._duration}
            return lease

        return await self._change(change, revision)

    async def renew(self) -> bool:
        """Extend the own claim."""

        def change(lease: dict[str, Any]) -> dict[str, Any] | None:
            if lease.get("spec", {}).get("holderIdentity") != self._node:
                return None
            lease["spec"]["renewTime"] = _now()
            return lease

        return await self._change(change, 1) is not None

    async def resign(self, state: State | None = None, revision: int = 0) -> int | None:
        """Give up the own claim."""

        def change(lease: dict[str, Any]) -> dict[str, Any] | None:
            if lease.get("spec", {}).get("holderIdentity") != self._node:
                return None
            if state is not None and not _set_state(lease, state, revision):
                return None
            lease["spec"]["holderIdentity"] = ""
            return lease

        return await self._change(change, 1)

    def _holder(self, lease: dict[str, Any]) -> str:
        """Return whose claim is valid; "" if there is none, or it has not changed for as long as it lasts."""
        spec = lease.get("spec") or {}
        claim = _Claim(
            str(spec.get("holderIdentity") or ""),
            str(spec.get("renewTime") or ""),
            float(spec.get("leaseDurationSeconds") or self._duration),
        )
        now = asyncio.get_running_loop().time()
        if claim != self._seen:
            self._seen, self._seen_at = claim, now
        return claim.holder if now - self._seen_at < claim.duration else ""

    async def _change(self, change: _Change, revision: int) -> int | None:
        """Change the Lease, if the change wants that; return the revision of the state afterwards.

        Args:
            change: The change.
            revision: Revision of the state that it expects; 0 if the Lease may have to be made.
        """
        for _ in range(_TRIES):
            found = await self._get()
            if found is None and revision:
                return None
            made = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name},
                "spec": {},
            }
            wanted = change(found or made)
            if wanted is None:
                return None
            method, url = ("POST", self._leases) if found is None else ("PUT", self._url)
            status, answer = await self._ask(method, url, wanted)
            if status in (200, 201):
                return _revision(answer)
            if status != 409:
                raise _unexpected(status, answer)
        raise RegisterError(f"the Lease {self._name} is changed all the time")

    async def _get(self) -> dict[str, Any] | None:
        status, answer = await self._ask("GET", self._url)
        if status == 404:
            return None
        if status != 200:
            raise _unexpected(status, answer)
        return answer

    async def _ask(self, method: str, url: str, body: object = None) -> tuple[int, dict[str, Any]]:
        try:
            async with self._open().request(
                method,
                url,
                json=body,
                headers=self._headers(),
                timeout=aiohttp.ClientTimeout(total=self._timeout),
                ssl=self._tls or True,
            ) as response:
                answer = json.loads(await response.read())
                if not isinstance(answer, dict):
                    raise ValueError("it does not answer with a JSON object")
                return response.status, answer
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise RegisterError(f"the API server of Kubernetes cannot be asked: {reason}") from error

    async def _watch_once(self) -> None:
        """Set the event with each change of the Lease."""
        asked = {"watch": "1", "fieldSelector": f"metadata.name={self._name}"}
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with self._open().get(
                self._leases,
                params=asked,
                headers=self._headers(),
                timeout=self._watch_timeout(),
                ssl=self._tls or True,
            ) as response:
                await self._note_changes(response)

    def _headers(self) -> dict[str, str]:
        # It is replaced every hour.
        return {"Authorization": f"Bearer {self._token.read_text().strip()}"}


def _notes(lease: dict[str, Any]) -> dict[str, str]:
    annotations: dict[str, str] = lease["metadata"].get("annotations") or {}
    return annotations


def _revision(lease: dict[str, Any]) -> int:
    text = _notes(lease).get(_REVISION, "0")
    if not text.isdigit():
        raise RegisterError(f"the annotation {_REVISION} is {text!r}, and should be a number")
    return int(text)


def _set_state(lease: dict[str, Any], state: State, revision: int) -> bool:
    """Replace the state in a Lease if its revision is this one; return whether it is."""
    if _revision(lease) != revision:
        return False
    notes = {**_notes(lease), _STATE: state.to_json(), _REVISION: str(revision + 1)}
    lease["metadata"]["annotations"] = notes
    return True


def _now() -> str:
    """Return the time for people; nothing is decided by it but whether it has changed."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _unexpected(status: int, answer: dict[str, Any]) -> RegisterError:
    return RegisterError(f"the API server of Kubernetes answers {status}: {answer.get('message', '')}")

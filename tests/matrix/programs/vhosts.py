"""A virtual host of the broker under test, seen through the HTTP API."""

from __future__ import annotations

from typing import Any
from urllib.error import HTTPError

from tests.integration.waiting import wait_until
from tests.support.management import Management


class Vhost:
    """A virtual host."""

    def __init__(self, api: Management, server: str, name: str) -> None:
        self._api = api
        self.name = name
        self.url = f"{server}/{name}"

    def create(self, user: str) -> None:
        """Create it, with all permissions for a user."""
        self._api.request("PUT", "vhosts", self.name)
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self._api.request("PUT", "permissions", self.name, user, body=everything)

    def delete(self) -> None:
        """Delete it with all that it has."""
        self._api.request("DELETE", "vhosts", self.name)

    def exchange_types(self) -> set[str]:
        """The exchange types that the broker has."""
        return {each["name"] for each in self._api.request("GET", "overview")["exchange_types"]}

    def queue(self, name: str) -> dict[str, Any] | None:
        """A queue as the HTTP API shows it; None if it does not exist."""
        try:
            found: dict[str, Any] = self._api.request("GET", "queues", self.name, name)
        except HTTPError as error:
            if error.code == 404:
                return None
            raise
        return found

    def take(self, queue: str) -> dict[str, Any]:
        """Take one message out of a queue, waiting for it."""
        body = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
        taken: list[dict[str, Any]] = []

        def take() -> bool:
            taken.extend(self._api.request("POST", "queues", self.name, queue, "get", body=body))
            return bool(taken)

        wait_until(take, f"a message in {queue}")
        return taken[0]

    def close_consumers(self, queue: str) -> bool:
        """Close the connections of a queue's consumers, as an administrator would; return whether there were any.

        RabbitMQ lists a consumer before it says which connection it has: nothing is done until all have one.
        """
        channels = [each["channel_details"] for each in (self.queue(queue) or {}).get("consumer_details", [])]
        if not channels or not all(channels):
            return False
        for name in {channel["connection_name"] for channel in channels}:
            self._api.request("DELETE", "connections", name)
        return True

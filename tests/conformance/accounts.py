"""Users, virtual hosts, permissions and limits that the conformance tests create on the broker under test."""

from __future__ import annotations

from typing import Any

# User (without the prefix): tags, limits. The password of every user is PASSWORD.
PASSWORD = "conformance"
USERS: dict[str, tuple[list[str], dict[str, int]]] = {
    "reader": ([], {}),
    "writer": ([], {}),
    "configurer": ([], {}),
    "nobody": ([], {}),
    "stranger": ([], {}),
    "partial": ([], {}),
    "empty-patterns": ([], {}),
    "default-exchange": ([], {}),
    "topic": ([], {}),
    "impersonator": (["impersonator"], {}),
    "administrator": (["administrator", "management", "monitoring", "policymaker"], {}),
    "max-channels": ([], {"max-channels": 2}),
    "max-connections": ([], {"max-connections": 1}),
    "no-connections": ([], {"max-connections": 0}),
}
# User: configure, write and read patterns in the tested virtual host. `stranger` has no entry at all.
PERMISSIONS = {
    "reader": ("^$", "^$", ".*"),
    "writer": ("^$", ".*", "^$"),
    "configurer": (".*", "^$", "^$"),
    "nobody": ("^$", "^$", "^$"),
    "partial": ("mine|yours", "mine", "mine"),
    "empty-patterns": ("", "", ""),
    "default-exchange": ("^$", "^amq\\.default$", "^$"),
    "topic": (".*", ".*", ".*"),
    "impersonator": (".*", ".*", ".*"),
    "administrator": ("^$", "^$", "^$"),
    "max-channels": (".*", ".*", ".*"),
    "max-connections": (".*", ".*", ".*"),
    "no-connections": (".*", ".*", ".*"),
}
# Topic permissions of the user `topic` on amq.topic: write and read patterns for routing keys.
TOPIC_PERMISSION = ("^w\\.", "^({username}|r)\\.")
# Virtual host: whether the default user has all permissions there, and its limits.
VHOSTS: dict[str, tuple[bool, dict[str, int]]] = {
    "empty": (False, {}),
    "max-queues": (True, {"max-queues": 2}),
    "max-connections": (True, {"max-connections": 1}),
    "no-connections": (True, {"max-connections": 0}),
}


class Accounts:
    """The accounts of one test process; names have a prefix, so that processes do not affect each other."""

    password = PASSWORD

    def __init__(self, prefix: str, vhost: str, user: str) -> None:
        self.prefix = prefix
        self.vhost_under_test = vhost
        self.default_user = user

    def user(self, name: str) -> str:
        """Return the full name of a user of `USERS`."""
        assert name in USERS
        return self.prefix + name

    def login(self, name: str) -> dict[str, str]:
        """Return user and password, for `Connection(url, **login)`."""
        return {"user": self.user(name), "password": PASSWORD}

    def vhost(self, name: str) -> str:
        """Return the full name of a virtual host of `VHOSTS`."""
        assert name in VHOSTS
        return self.prefix + name

    def definitions(self) -> dict[str, Any]:
        """Return the accounts as a RabbitMQ definitions document."""
        grants = [(self.user(name), self.vhost_under_test, patterns) for name, patterns in PERMISSIONS.items()]
        grants += [
            (self.default_user, self.vhost(name), (".*", ".*", ".*")) for name, (open_, _) in VHOSTS.items() if open_
        ]
        write, read = TOPIC_PERMISSION
        return {
            "users": [
                {"name": self.user(name), "password": PASSWORD, "tags": tags, "limits": limits}
                for name, (tags, limits) in USERS.items()
            ],
            "vhosts": [{"name": self.vhost(name)} for name in VHOSTS],
            "permissions": [
                {"user": user, "vhost": vhost, "configure": configure, "write": write, "read": read}
                for user, vhost, (configure, write, read) in grants
            ],
            "topic_permissions": [
                {
                    "user": self.user("topic"),
                    "vhost": self.vhost_under_test,
                    "exchange": "amq.topic",
                    "write": write,
                    "read": read,
                }
            ],
            "parameters": [
                {"vhost": self.vhost(name), "component": "vhost-limits", "name": "limits", "value": limits}
                for name, (_, limits) in VHOSTS.items()
                if limits
            ],
        }

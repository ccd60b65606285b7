"""Global parameters: JSON values by name that belong to no virtual host."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from leveret.storage.definitions_database import Journal, NoJournal

_KIND: Final = "global_parameter"
#: A permanent identifier of the broker, generated at the first start.
CLUSTER_ID: Final = "internal_cluster_id"
CLUSTER_NAME: Final = "cluster_name"


class GlobalParameters:
    """The global parameters of a broker. Every change is durable.

    Attributes:
        journal: Where changes are written.
    """

    def __init__(self) -> None:
        self.journal: Journal = NoJournal()
        self._values: dict[str, Any] = {}

    @property
    def values(self) -> Mapping[str, Any]:
        """All parameters by name."""
        return MappingProxyType(self._values)

    def set(self, name: str, value: Any) -> bool:
        """Set a parameter; return whether it is new.

        Args:
            name: Name of the parameter.
            value: A JSON value.
        """
        is_new = name not in self._values
        self._values[name] = value
        self.journal.put(_KIND, (name,), {"value": value})
        return is_new

    def clear(self, name: str) -> bool:
        """Remove a parameter; return whether it existed."""
        if name not in self._values:
            return False
        del self._values[name]
        self.journal.delete(_KIND, (name,))
        return True

    def ensure_cluster_id(self) -> None:
        """Generate the cluster ID if there is none."""
        if CLUSTER_ID not in self._values:
            identity = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode("ascii").rstrip("=")
            self.set(CLUSTER_ID, f"leveret-cluster-id-{identity}")

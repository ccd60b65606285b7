"""Field tables as JSON."""

from __future__ import annotations

from broker.core.json_tables import table_to_json as table_to_json

__all__ = ["table_to_json"]

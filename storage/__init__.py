"""Durable message storage: handles positions and raw bytes, not AMQP methods."""

from __future__ import annotations

if __name__ != "leveret.storage":
    raise ImportError(f"{__name__} is a folder of the package leveret: import leveret.storage instead")

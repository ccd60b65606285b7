"""The broker: sessions, queues and management on top of protocol, policies and storage."""

from __future__ import annotations

if __name__ != "leveret.broker":
    raise ImportError(f"{__name__} is a folder of the package leveret: import leveret.broker instead")

"""AMQP 0-9-1 codec: parses received bytes into events and encodes frames. Does no I/O."""

from __future__ import annotations

if __name__ != "leveret.protocol":
    raise ImportError(f"{__name__} is a folder of the package leveret: import leveret.protocol instead")

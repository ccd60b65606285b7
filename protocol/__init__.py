"""AMQP 0-9-1 on the wire: bytes in, events out; frames in, bytes out. No I/O."""

from __future__ import annotations

if __name__ != "leveret.protocol":
    raise ImportError(f"{__name__} is a folder of the package leveret: import leveret.protocol instead")

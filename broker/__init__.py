"""The broker: wires protocol, policies and storage into a program."""

from __future__ import annotations

if __name__ != "leveret.broker":
    raise ImportError(f"{__name__} is a folder of the package leveret: import leveret.broker instead")

"""Decisions without I/O or clock: effective settings, limits, dead-lettering, permission matching."""

from __future__ import annotations

if __name__ != "leveret.policies":
    raise ImportError(f"{__name__} is a folder of the package leveret: import leveret.policies instead")

"""Decisions without I/O or clock: effective settings, limits, dead-lettering, permission matching."""

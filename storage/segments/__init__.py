"""Segment files: one store's messages on disk, and which of them are dead."""

"""Durable definitions: how they are written, restored, exported and imported."""

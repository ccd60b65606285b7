"""Queues: classic, priority and quorum."""

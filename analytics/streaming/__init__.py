"""Streaming queries: what has come since the last batch, each message and event once, and what was missed."""

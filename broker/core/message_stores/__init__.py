"""Binds queues to the stores of their messages, in memory or in the data directory."""

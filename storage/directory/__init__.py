"""The data directory: lock, format, queues, upgrades."""

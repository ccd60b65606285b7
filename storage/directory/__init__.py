"""The data directory as a whole: lock, format, queues, upgrades."""

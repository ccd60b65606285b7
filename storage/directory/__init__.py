"""The data directory: lock, format, queues, upgrades.

Formats (`directory/directory_format.py`). A new format is a row in `MIGRATIONS` that says which files change. The old
contents are copied, the new contents prepared, and a journal makes them valid. From then on they are copied into place,
by the next start if necessary. What readers of an older version do with a newer directory is in
`snapshots/__init__.py`. Definitions have steps of their own in one SQLite transaction (`definitions_database.py`).
"""

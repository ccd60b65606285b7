"""Snapshots: read access for other processes while the broker runs."""

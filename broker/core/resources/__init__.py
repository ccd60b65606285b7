"""Alarms and limits: memory, disk space, sockets."""

"""Stores: the messages of one priority of a queue, in memory and on disk."""

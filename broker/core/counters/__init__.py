"""The counters of all objects, their histories, and what remains of deleted ones."""

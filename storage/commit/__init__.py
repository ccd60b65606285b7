"""Commits: syncs written data before waiting callbacks such as confirms are called."""

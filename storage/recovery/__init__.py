"""Putting stores together again at the start."""

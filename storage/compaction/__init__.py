"""Giving back the space of what is dead."""

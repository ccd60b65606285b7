"""The HTTP side of management."""

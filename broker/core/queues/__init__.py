"""Queue processes."""

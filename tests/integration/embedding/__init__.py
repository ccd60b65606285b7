"""A broker inside tests: what its fixtures, and its calls, do."""

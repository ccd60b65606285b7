"""Messages as the core sees them: who has published them, and what a route leads to."""

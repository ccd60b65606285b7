"""Output formatters, one module each."""

"""Looking into a running broker from outside."""

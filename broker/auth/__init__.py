"""Users, passwords, permissions."""

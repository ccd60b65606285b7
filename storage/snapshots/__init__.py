"""What other processes read while the broker runs."""

"""What the output looks like, a file for each formatter."""

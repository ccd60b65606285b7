"""The commands, a file for each close family of them."""

"""leveretctl: the command line over the management HTTP API."""

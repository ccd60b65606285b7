"""leveretctl, the command line tool. It uses the management HTTP API."""

"""Jobs: long work on messages that goes on without the client that has asked for it, and over restarts."""

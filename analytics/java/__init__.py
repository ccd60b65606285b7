"""The Java of the jobs on this machine: how it starts fast, and what it writes to."""

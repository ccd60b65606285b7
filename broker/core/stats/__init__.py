"""Statistics: counters, samples every few seconds, and their histories."""

"""When work runs: turns, timers and time slices."""

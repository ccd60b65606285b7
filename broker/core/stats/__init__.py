"""Statistics that read counters: samples, sums, and lines and files about losses."""

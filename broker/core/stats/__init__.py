"""What has happened in the broker, as numbers: counted as it happens, sampled every few seconds."""

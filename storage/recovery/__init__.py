"""Recovery of stores at startup, checkpoints."""

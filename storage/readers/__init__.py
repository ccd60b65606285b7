"""Named readers: what they have not read yet stays on disk."""

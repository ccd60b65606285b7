"""Exchange types, those of a kind in one file, and the base class of all."""

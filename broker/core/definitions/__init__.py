"""Definitions as documents, and their restoration at a start."""

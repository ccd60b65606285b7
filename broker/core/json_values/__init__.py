"""JSON from and for clients: checked values, field tables, long texts."""

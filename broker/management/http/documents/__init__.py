"""JSON documents of the broker's objects, one file per kind."""

"""What objects of the broker look like in the HTTP API, one file a kind."""

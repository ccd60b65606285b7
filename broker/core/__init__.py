"""Virtual hosts, exchanges, bindings, queues, consumers: what the broker is about."""

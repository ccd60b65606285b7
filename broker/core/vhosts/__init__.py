"""Virtual hosts: exchanges, queues, bindings and policies of one, and how messages go through them."""

"""What clients may do with queues, exchanges and messages: rules of AMQP and of the HTTP API, in one place."""

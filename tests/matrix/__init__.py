"""The matrix: programs that use AMQP, each with its own libraries, against a real broker with its defaults."""

"""What each AMQP method does, one file a class."""

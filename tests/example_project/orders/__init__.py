"""Takes orders over AMQP, and hands them to those who pack them."""

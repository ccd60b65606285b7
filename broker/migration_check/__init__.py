"""What would be different if a RabbitMQ moved here: the check behind `leveretctl check_migration`."""

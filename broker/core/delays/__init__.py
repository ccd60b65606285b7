"""Messages of exchanges x-delayed-message that are not due yet."""

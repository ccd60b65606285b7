"""The sink: publishes rows of Spark to an exchange of a broker."""

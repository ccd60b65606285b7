"""The sink: publishes rows of Spark to an exchange of a broker.

The sink (`analytics/sink/`) publishes the rows of a Spark task over a connection of its own, with a small blocking
client, so that workers need no AMQP library. Confirms come in any order, and what no queue gets comes back without a
number, so the publisher keeps what is not confirmed yet. Spark repeats what has failed; exactly once comes from the
exchange, which drops what has the key of a row that it has seen.
"""

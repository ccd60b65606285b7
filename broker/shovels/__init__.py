"""Shovels: take messages from a queue of one broker and publish them to another one, or the same.

``shovels.py`` has all shovels of the broker; nothing else is imported until there is one. ``run.py`` moves the messages
of one between two ends, and changes them: ``local.py`` is the broker itself, whose queues and exchanges it uses without
a socket; ``remote.py`` another broker, to which aiormq keeps the connection.

With `on-confirm` a message is acknowledged at the source when the destination has confirmed it. So whatever is killed,
nothing is lost, and what was not acknowledged comes twice.

Source: https://www.rabbitmq.com/docs/shovel, and RabbitMQ 3.10.8 observed.
"""

"""What policies do: which queues they match, what each setting comes from, and what a change would do."""

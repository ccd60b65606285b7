"""Brokers that are ended in every way while clients use them and calls fail, and what is left is compared.

`python -m tests.torture --help` says how to run it; docs/testing.md what it does.
"""

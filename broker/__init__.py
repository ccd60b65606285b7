"""The broker: wires protocol, policies and storage into a program."""

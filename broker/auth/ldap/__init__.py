"""Users of a directory: LDAP servers say who may log in, and answer queries about what they may do.

Source: https://www.rabbitmq.com/docs/ldap
"""

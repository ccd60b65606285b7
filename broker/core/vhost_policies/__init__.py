"""The policies of a virtual host: which are in force, what they match, what a change would do."""

"""Who may log in, and what they may do then: the broker's own users, or those of other servers."""

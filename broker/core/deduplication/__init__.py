"""Message deduplication: exchanges and queues that drop messages whose header x-deduplication-header they know."""

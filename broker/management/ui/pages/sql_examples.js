/** Statements for the questions that people have about what waits, and about what has become of messages. */

export const EXAMPLES = [
  {
    question: "What waits where, and since when?",
    statement: "select vhost, queue, count(*) as messages, min(enqueued_at) as oldest, sum(body_bytes) as bytes\nfrom messages\ngroup by all\norder by messages desc",
  },
  {
    question: "When did it arrive?",
    statement: "select date_trunc('minute', enqueued_at) as minute, count(*) as messages\nfrom messages\ngroup by minute\norder by minute",
  },
  {
    question: "By which routing keys?",
    statement: "select queue, exchange, routing_key, count(*) as messages\nfrom messages\ngroup by all\norder by messages desc\nlimit 50",
  },
  {
    question: "By which header?",
    statement: "select headers['region'] as region, count(*) as messages\nfrom messages\nwhere queue = 'orders'\ngroup by region\norder by messages desc",
  },
  {
    question: "By which field of a JSON body?",
    statement: "select as_json(body) ->> '$.customer' as customer, count(*) as messages\nfrom messages\nwhere queue = 'orders'\ngroup by customer\norder by messages desc\nlimit 50",
  },
  {
    question: "Which messages contain a text?",
    statement: "select queue, seq, message_id, enqueued_at, as_text(body) as body\nfrom messages\nwhere as_text(body) like '%refund%'\nlimit 20",
  },
  {
    question: "Which are poison messages?",
    statement: "select queue, message_id, dead_letter_count, dead_letter_reason, dead_letter_queue, redelivered, as_text(body) as body\nfrom messages\nwhere dead_letter_count > 0 or redelivered\norder by dead_letter_count desc\nlimit 20",
  },
  {
    question: "Who publishes it?",
    statement: "select queue, user_id, app_id, type, count(*) as messages\nfrom messages\ngroup by all\norder by messages desc\nlimit 50",
  },
  {
    question: "Which are the largest?",
    statement: "select queue, seq, message_id, content_type, body_bytes\nfrom messages\norder by body_bytes desc\nlimit 20",
  },
  {
    question: "Which came twice?",
    statement: "select message_id, count(*) as messages, list(distinct queue) as queues\nfrom messages\nwhere message_id is not null\ngroup by message_id\nhaving count(*) > 1\norder by messages desc\nlimit 50",
  },
  {
    question: "What has become of messages, and how long did they wait?",
    statement: "select queue, kind, sum(messages) as messages, max(wait_ms) / 1000 as longest_wait_seconds\nfrom events\nwhere event_at > now() - interval 1 day\ngroup by all\norder by messages desc",
  },
  {
    question: "What is delayed, and until when?",
    statement: "select delayed_in, count(*) as messages, min(due_at) as first_due, max(due_at) as last_due\nfrom delayed\ngroup by all",
  },
];

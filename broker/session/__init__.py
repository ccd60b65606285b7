"""AMQP sessions over asyncio: listeners, connections and channels.

Reads. A connection is a plain `Protocol` of asyncio: uvloop hands it what it has read as bytes, in one call. A
`BufferedProtocol` takes two calls, and its bytes have to be copied out of the buffer, because the frame reader keeps
parts.

Runs. Consecutive messages on the wire that differ only in their bodies are one `PublishRun`: the reader compares the
next bytes with the frames it has just read, and a message costs one comparison and one slice. Everything up to the
queue happens once per run. Consecutive single acks are one `AckRun`. Batching changes nothing else: any split of the
byte stream means the same, which the tests check.

Headers that differ. Most programs send a message-id or a headers table of its own with every message. Consecutive
messages of one route with different headers are one `VariedRun`. `protocol/header_scan.py` checks each header without
decoding it, and reads delivery mode and priority. Headers that the broker acts on (CC, BCC, expiration, user-id,
direct reply-to), and malformed ones, are decoded as single messages. The others go to the queues in batches, if the
queues accept batches of different sizes (`Queue.accepts_varied`).

Routes. All equal publish payloads of a connection share a `Publish` object. Its `PublishRoute` caches the exchange,
the permission checks, the queues and the `Envelope` of the last content header. It is valid as long as
`Principal.generation` does not change; every change of topology or permissions increases it.

A route that takes long to find (`RouteSearch`), a connection that has sent a lot at once, and a queue that is
being shrunk are worked on in slices of 5 ms: the event waits in `session/intake.py` and is handled again later. So are
very many messages that are requeued at once (`core/queues/returns.py`): their queue delivers nothing until all are
back.

Connections and channels. References go one way: a `Connection` (socket and connection state) has a `ChannelTable`,
which has `Channel`s, which share a `ChannelHost`. The host has what channels need of the connection and the broker:
output, virtual host, the user's permissions, limits, cached routes, the stores that confirm. So a channel knows no
connection, and what has ended is freed without the garbage collector. The handshake (`session/handshake.py`) decides
and makes replies; the connection applies and sends them.

Credit. A consumer without credit leaves its queue's ring and returns when something is settled, its limit changes, or
its connection has room. A queue with a thousand consumers at their prefetch limit costs nothing per message. Consumers
that share a limit (`basic.qos` with global=true) take turns: a consumer that finds no room waits behind those that
already wait, and keeps its place until it is served (`session/unacked.py`).
"""

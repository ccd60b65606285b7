"""Statistics that read counters: samples, sums, and lines and files about losses.

What happens to messages is counted once per run, in integers of the channel, queue, exchange and connection. Three
classes in `core/stats/` read these counters: a `Census` adds them up by virtual host on request, `CounterTotals` by
kind of object for Prometheus, and a `Sampler` adds a sample to the histories every 5 s. Losses have a history of a day
(`core/counters/history.py`), which `losses.json` keeps over restarts: it has a position in the event log, and a start
adds the events after it (`core/stats/loss_record.py`). Long lists, long request bodies and the bodies of messages,
which become JSON piece by piece, are handled in slices of 5 ms (`core/scheduling/slices.py`); many long requests share
one slice per turn. Ended objects leave no reference cycles, so `broker/garbage.py` can restrict the garbage collector
to new objects: scanning ten thousand queues takes 0.4 s. Tracing (`core/vhosts/tracing.py`) costs one attribute check
per run. leveretctl and the analytics are clients: one uses only HTTP, the other only the files.
"""

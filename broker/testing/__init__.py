"""What a test can do with a broker inside its process: its ports, its clock, looking into it, faults.

In tests a broker is reset by another `App` on another data directory, so nothing of the old one can be left:
`App.abandon` leaves the files as the death of the process would, which is also how a test kills it. The listening
sockets are kept (`broker/ports.py`). A thread prepares the next directory meanwhile, and temporary ones are never
synced. The rest of the broker knows nothing of this but the `Embedding` that `App` is given: files, sockets, whether
the directory is temporary, and an interceptor of the events of connections (`session/shared_state.py`), which keeps
what is published and causes faults.
"""

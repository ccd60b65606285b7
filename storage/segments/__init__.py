"""Segment files: the messages of a store on disk, and its set of dead messages."""

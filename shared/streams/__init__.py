"""One producer/consumer seam over Redis Streams, and its in-memory twin.

A stream here is a work queue with one consumer group: `ack` also deletes, so the length of a stream is its backlog.
"""

from shared.streams.memory import MemoryStreams
from shared.streams.protocol import DeadLetter, Entry, Streams, dead_stream
from shared.streams.redis import RedisStreams

__all__ = ["DeadLetter", "Entry", "MemoryStreams", "RedisStreams", "Streams", "dead_stream"]

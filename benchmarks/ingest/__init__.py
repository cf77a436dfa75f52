"""Feedback into the ledger: ingest beside the plain handler and pgbench; the recorder; the join's query at scale.

__main__  the run: peers × connections, interleaved rounds, medians, JSON lines
event     the one event that all of them store
load      a closed-loop load generator; a process of its own
naive     the plain one-transaction-per-request FastAPI handler
pgbench   the limit: the same row, prepared, without HTTP
recorder  generations per second from the stream into PostgreSQL; a process of its own
joins     the join's query at 50,000 and 5 million generations
servers   how ingest, the plain handler and their PostgreSQL are started
"""

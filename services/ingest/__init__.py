"""Feedback front door (8082) and the ledger's only writer.

In: editors' accept and reject events (HTTP), generations (stream from the gateway).
Out: the ledger (PostgreSQL) and experience (stream to the trainer).

    HTTP event ─▶ feedback_events ─▶ joiner ─▶ outcomes ─▶ resolver ─▶ experience + outbox ─▶ relay ─▶ stream experience
    stream generations ─▶ recorder ─▶ generations ───┘

Pure centres: `shown` and `joining` (which generation, which tokens), `outcomes`, `settled`, `rewards`, `grouping`.
"""

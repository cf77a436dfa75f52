"""`make chaos-ingest`: ingest, recorder, relay, Redis and PostgreSQL are killed under load; then it is counted."""

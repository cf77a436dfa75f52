"""The ledger's schema, step by step (Alembic). `python -m migrations` brings a database up to date."""

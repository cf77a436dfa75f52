"""The ledger's tables and how to reach them. Alembic migrations in `migrations/` import this package and no other."""

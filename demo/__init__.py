"""`make demo`: the whole system on one machine, with simulated developers at work, measured from its own ledger."""

"""The small test client: one completion, one feedback event, and a plain report of what worked."""

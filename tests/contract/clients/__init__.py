"""The clients themselves, against a gateway: what they show, and what was recorded meanwhile."""

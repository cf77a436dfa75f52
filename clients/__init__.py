"""Clients of Tabwise: simulated people and editors that drive a running system."""

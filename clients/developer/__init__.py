"""Simulated developers: they type code, pause, are shown completions, and press Tab or not."""

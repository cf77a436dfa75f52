"""What clients say: one module per protocol, each turning its requests into a `Call` and deltas into its answers."""

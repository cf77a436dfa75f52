"""One module per client protocol. Each has `begin`: bytes of a request → a `Call` and its `Writer`. All pure."""

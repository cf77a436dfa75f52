"""The OpenAI-compatible front door: completions flow through, and what was sampled is recorded on the side.

In: `POST /v1/completions` from editors. Out: the engine's tokens as they come, and one `Generation` per choice to the
stream `generations`. Editors never wait for the second.

    routes ── protocols (what a client says) ── completion (one request's life)
                                                  ├── asking (replica after replica) ── router, attempts
                                                  │      └── upstream (a replica's SSE answer) ── sse, chunks
                                                  ├── capture (what was sampled), stops (what may be shown)
                                                  └── emitter (to Redis), metrics
    pool (probes, announcements of the publisher) ── router
"""

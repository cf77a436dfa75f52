"""The garbage collector of a process that serves requests."""

from __future__ import annotations

import gc


def spare_collector() -> None:
    """Call before serving: what is loaded by now stays for good and need not be looked through again and again.

    Measured on ingest at 256 connections: 188 → 122 µs of CPU per event; on the gateway about a third of a request.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)

"""Settings of the settling loop. Durations are seconds."""

from __future__ import annotations

from pydantic import Field

from shared.kit.settings import ServiceSettings


class SettlingSettings(ServiceSettings):
    """How it is looked back at what became of completions."""

    run_settling: bool = True
    settling_poll_interval_s: float = Field(default=1.0, gt=0)
    """Each look takes a batch so often, also where more waits: looking back is never in a hurry."""
    settling_batch_size: int = Field(default=200, gt=0)
    """Generations or outcomes that one look takes at once."""
    settling_lookback_s: float = Field(default=3600.0, gt=0)
    """How far back a look begins that has never been taken."""
    silent_protocols: str = "llamacpp"
    """Protocols whose clients send no events, separated by commas; empty: none. What their developers are seen to have
    written as suggested becomes an outcome."""
    silent_after_s: float = Field(default=600.0, ge=0)
    """Only where a key's client of such a protocol has sent nothing but requests for so long."""
    silent_window_s: float = Field(default=86_400.0, gt=0)
    """An event within so long says that it does send events."""

    @property
    def silent(self) -> frozenset[str]:
        """The protocols named by `silent_protocols`."""
        return frozenset(name.strip() for name in self.silent_protocols.split(",") if name.strip())

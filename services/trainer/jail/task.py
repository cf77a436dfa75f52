"""What the sandbox and the jail say to each other, as JSON."""

from __future__ import annotations

from typing import Literal, TypedDict

Killed = Literal["timeout", "memory", "output"]
"""Which limit the warden killed for."""

HOME = "/tmp/project"
"""Where a command in namespaces finds its copy of the project."""


class Task(TypedDict):
    """One command."""

    folder: str
    """Empty, and the caller's to remove."""
    namespaces: bool
    user: int | None
    """Number of the user to become; None: stay who one is."""
    project: str | None
    """Folder to copy."""
    left_out: list[str]
    """Names in it that are not copied."""
    files: dict[str, str]
    """Path in the copy → content, put there on top."""
    readable: list[str]
    """Paths that the command may read besides the system's programs; of use with namespaces."""
    command: list[str]
    environment: dict[str, str]
    report: str | None
    """Path in the copy of a file to hand over at the end."""
    limits: dict[str, int]
    """Name in the module `resource` → value, for each process."""
    timeout_s: float
    memory_bytes: int
    """Of all processes together."""
    disk_bytes: int
    """Of the RAM disk; of use with namespaces."""
    output_bytes: int


class Verdict(TypedDict, total=False):
    """How it ended. Neither `status` nor `killed`: the keeper died."""

    problem: str
    """Why it was not run."""
    killed: Killed | None
    status: int
    """Exit status of the command; -N where signal N ended it."""
    output: str
    """The last of what it printed."""
    report: str | None

"""Settings of the figures that ingest answers: acceptance and joins. Part of `IngestSettings`."""

from __future__ import annotations

from pydantic import Field

from services.ingest.privacy_settings import ALL_PROJECTS
from shared.kit.settings import ServiceSettings


class FiguresSettings(ServiceSettings):
    """Environment variable of a field: `TABWISE_` + its name in capitals."""

    projects_with_names: str = ""
    """Projects whose developers are named in figures, separated by commas; `*`: all. Without, by a pseudonym."""
    figures_timeout_s: float = Field(default=10.0, gt=0)
    """A query that takes longer is broken off, and answered 503."""
    figures_max_groups: int = Field(default=1000, gt=0)
    """Groups in one answer; it says so where there are more."""

    @property
    def named_projects(self) -> frozenset[str]:
        """Those of `projects_with_names`."""
        return frozenset(name.strip() for name in self.projects_with_names.split(",") if name.strip())

    @property
    def names_everywhere(self) -> bool:
        """Whether developers of all projects are named."""
        return ALL_PROJECTS in self.named_projects

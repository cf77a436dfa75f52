"""Settings of what is kept, for how long, and of whom nothing is learned. Part of `IngestSettings`."""

from __future__ import annotations

from shared.kit.settings import ServiceSettings

ALL_PROJECTS = "*"


class PrivacySettings(ServiceSettings):
    """Environment variable of a field: `TABWISE_` + its name in capitals."""

    keep_secrets_of: str = ""
    """Projects whose secrets are stored as they came, separated by commas; `*`: all. Nobody's, unless named here."""

    def keeps_secrets_of(self, project_id: str) -> bool:
        """Whether this project's secrets are stored as they came."""
        named = {name.strip() for name in self.keep_secrets_of.split(",")}
        return project_id in named or ALL_PROJECTS in named

"""The one base of all settings objects: `TABWISE_*` environment variables, read once at the edge and passed down."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.kit.errors import SettingsError


class ServiceSettings(BaseSettings):
    """Settings that every service shares. Environment variable of a field: `TABWISE_` + its name in capitals."""

    model_config = SettingsConfigDict(env_prefix="TABWISE_", env_file=None, extra="ignore", frozen=True)

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["json", "console"] = "json"

    @classmethod
    def load(cls) -> Self:
        """From the environment. Raises `SettingsError`: one sentence that names the variable."""
        try:
            return cls()
        except ValidationError as error:
            first = error.errors()[0]
            if not first["loc"]:  # of several settings together: the sentence names them
                raise SettingsError(first["msg"].removeprefix("Value error, ")) from None
            name = "_".join(map(str, first["loc"])).upper().removeprefix("TABWISE_")
            raise SettingsError(f"TABWISE_{name}: {first['msg']}") from None

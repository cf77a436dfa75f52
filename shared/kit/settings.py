"""The one base of all settings objects: `TABWISE_*` environment variables, read once at the edge and passed down."""

from __future__ import annotations

from typing import Literal

from pydantic_settings import BaseSettings, SettingsConfigDict


class ServiceSettings(BaseSettings):
    """Settings that every service shares. Environment variable of a field: `TABWISE_` + its name in capitals."""

    model_config = SettingsConfigDict(env_prefix="TABWISE_", env_file=None, extra="ignore", frozen=True)

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["json", "console"] = "json"

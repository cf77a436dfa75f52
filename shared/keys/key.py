"""Whom a request comes from, and what that key may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from shared.web.errors import ApiError

Scope = Literal["complete", "feedback", "admin"]
"""`complete`: every completion route, chat and models. `feedback`: every event route. `admin`: figures."""

ALL_SCOPES: Final[frozenset[Scope]] = frozenset(get_args(Scope))
DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Key:
    """Whom a request comes from. `key_id` is safe to log and to store; the secret is not kept."""

    key_id: str
    project_id: str | None
    """The project that the key is bound to; None: the client may name one."""
    name: str = ""
    """Whose it is, as the operator called it."""
    scopes: frozenset[Scope] = ALL_SCOPES

    def project(self, requested: str | None = None) -> str:
        """The project that counts. Raises 403 where the key is bound to another one."""
        if self.project_id is None:
            return requested or DEFAULT_PROJECT
        if requested is not None and requested != self.project_id:
            raise ApiError(
                403,
                "wrong_project",
                f"this key belongs to project {self.project_id!r}; send that in X-Project-ID or leave it out",
                param="X-Project-ID",
                type_="permission_error",
            )
        return self.project_id

    def require(self, *any_of: Scope) -> None:
        """Raises 403 unless the key has at least one of these scopes."""
        if self.scopes.isdisjoint(any_of):
            raise ApiError(
                403,
                "missing_scope",
                f"this key may not do that: it needs the scope {' or '.join(any_of)}, "
                f"and has {', '.join(sorted(self.scopes)) or 'none'}",
                type_="permission_error",
            )

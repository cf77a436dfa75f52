"""One error shape for every answer that is not a success: OpenAI's.

    {"error": {"message": "…", "type": "invalid_request_error", "param": "body.accepted", "code": "invalid_body"}}

Continue retries a request whose error says `"code": 429` or contains `overloaded`: neither is used by accident.
"""

from __future__ import annotations

from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect

log = structlog.get_logger()


class ErrorDetail(BaseModel):
    """What went wrong and what to do about it. Never contains code."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(BaseModel):
    """The one shape, for OpenAPI documents."""

    error: ErrorDetail


class ApiError(Exception):
    """An answer that is not a success. `message` tells the client what to do; it never contains user code."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        type_: str = "invalid_request_error",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.type = type_
        self.headers = headers

    def body(self) -> dict[str, Any]:
        """The JSON body."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """The HTTP answer."""
        return JSONResponse(self.body(), status_code=self.status, headers=self.headers)


def from_validation(errors: list[Any]) -> ApiError:
    """The first of pydantic's errors as a 422 that names the field; never the value, which may be code."""
    first = errors[0]
    param = ".".join(str(part) for part in first.get("loc", ()))
    return ApiError(422, "invalid_body", f"{param or 'body'}: {first.get('msg', 'invalid')}", param=param or None)


def install_error_handlers(app: FastAPI) -> None:
    """Make every failure of `app` answer in the one shape."""

    @app.exception_handler(ApiError)
    async def _api_error(_: Request, error: ApiError) -> JSONResponse:
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def _validation(_: Request, error: RequestValidationError) -> JSONResponse:
        return from_validation(list(error.errors())).response()

    @app.exception_handler(StarletteHTTPException)
    async def _http(_: Request, error: StarletteHTTPException) -> JSONResponse:
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
        return ApiError(error.status_code, code, str(error.detail)).response()

    @app.exception_handler(ClientDisconnect)
    async def _gone(_: Request, error: ClientDisconnect) -> JSONResponse:
        return ApiError(400, "client_disconnected", "the body did not arrive whole").response()

    @app.exception_handler(Exception)
    async def _unexpected(request: Request, error: Exception) -> JSONResponse:
        log.error("unexpected error", path=request.url.path, error=type(error).__name__, exc_info=error)
        return ApiError(500, "internal_error", "internal error", type_="server_error").response()

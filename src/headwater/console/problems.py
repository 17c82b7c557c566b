"""Errors as the API tells them: a status, a code for programs and a sentence for people."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from headwater.console.control_link import NoAnswer
from headwater.errors import Code, HeadwaterError, Refusal

logger = logging.getLogger(__name__)

_STATUSES = {
    Code.MALFORMED: 400,
    Code.UNKNOWN_COMMAND: 400,
    Code.NOT_PERMITTED: 403,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.BUSY: 409,
    Code.TOO_LARGE: 413,
    Code.UNAVAILABLE: 503,
    Code.NO_SPACE: 507,
    Code.INTERNAL: 500,
}
_WORDS = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


class ApiError(Exception):
    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = headers or {}


def answer(
    status: int, code: str, message: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    # What a sentence quotes of a request may have what UTF-8 cannot say.
    told = message.encode(errors="replace").decode()
    content = {"error": {"code": code, "message": told}}
    return JSONResponse(content, status, headers)


def tell_errors(app: FastAPI) -> None:
    """Have all errors told in the same way."""

    @app.exception_handler(ApiError)
    def api_error(request: Request, error: ApiError) -> JSONResponse:
        return answer(error.status, error.code, error.message, error.headers)

    @app.exception_handler(NoAnswer)
    def no_answer(request: Request, error: NoAnswer) -> JSONResponse:
        return answer(503, "unavailable", str(error))

    @app.exception_handler(Refusal)
    def refusal(request: Request, error: Refusal) -> JSONResponse:
        return answer(_STATUSES[error.code], error.code.value.replace(" ", "_"), str(error))

    @app.exception_handler(HeadwaterError)
    def own_error(request: Request, error: HeadwaterError) -> JSONResponse:
        return answer(500, "internal", str(error))

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(each) for each in first["loc"][1:]) or "the request"
        return answer(422, "invalid", f"{place}: {first['msg']}")

    @app.exception_handler(HTTPException)
    def http_error(request: Request, error: HTTPException) -> JSONResponse:
        code = _WORDS.get(error.status_code, "error")
        return answer(error.status_code, code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(ClientDisconnect)
    def gone(request: Request, error: ClientDisconnect) -> JSONResponse:
        # Nobody reads this, and nothing is wrong here.
        return answer(400, "malformed", "the request was not sent to its end")

    @app.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> JSONResponse:
        path = request.scope.get("raw_path", b"").decode("latin-1")
        logger.exception("a request failed: %s %s", request.method, path)
        return answer(500, "internal", "internal error; the log of the broker says more")

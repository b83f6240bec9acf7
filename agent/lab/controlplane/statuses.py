"""Status objects: how an API server says what went wrong."""

from http import HTTPStatus

from agent.lab.controlplane.resources import JsonObject


class RequestRefused(Exception):
    """The request is answered with an HTTP error and a Status object."""

    def __init__(self, code: HTTPStatus, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason

    @property
    def status(self) -> JsonObject:
        """The body of the answer, or the object of an ERROR event."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.code.value,
        }


def expired(message: str) -> RequestRefused:
    """410: the history asked for is gone, list again."""
    return RequestRefused(HTTPStatus.GONE, "Expired", message)


def bad_request(message: str) -> RequestRefused:
    """400: a parameter cannot be understood."""
    return RequestRefused(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def not_found(message: str) -> RequestRefused:
    """404: no such object or path."""
    return RequestRefused(HTTPStatus.NOT_FOUND, "NotFound", message)


def unauthorized() -> RequestRefused:
    """401: no token, or the wrong one."""
    return RequestRefused(HTTPStatus.UNAUTHORIZED, "Unauthorized", "Unauthorized")


def invalid(message: str) -> RequestRefused:
    """422: parameters that exclude each other."""
    return RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message)


def timed_out(message: str) -> RequestRefused:
    """504: the server does not have that revision yet."""
    return RequestRefused(HTTPStatus.GATEWAY_TIMEOUT, "Timeout", message)

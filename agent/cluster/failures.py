"""What can go wrong between the agent and the API server, each as one line for a person."""

_LONGEST_MESSAGE = 300
_HINTS = {
    401: " (is the token valid?)",
    403: " (the agent's role must allow get, list and watch)",
}


class ConnectionSettingsError(Exception):
    """There is no usable way to reach an API server: the text says what to do. Trying again does not help."""


class ApiFailure(Exception):
    """A request or its stream failed; trying again may help."""


class Unreachable(ApiFailure):
    """No answer, or a connection that broke."""


class Silent(Unreachable):
    """Nothing came for as long as was waited for."""


class Garbled(ApiFailure):
    """An answer that is not what the API promises, so that what it meant to say is lost."""


class StatusFailure(ApiFailure):
    """The API server answered with an error; `code` is its HTTP status.

    `retry_after_seconds` is what it asked for, None if it did not.
    """

    def __init__(self, code: int, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(f"the API server says {code}: {one_line(message)}{_HINTS.get(code, '')}")
        self.code = code
        self.retry_after_seconds = retry_after_seconds


class Expired(ApiFailure):
    """The resource version is older than the history that the API server keeps: list again."""


def one_line(text: str) -> str:
    """The text without line breaks, cut to a length fit for a log."""
    joined = " ".join(text.split())
    return joined if len(joined) <= _LONGEST_MESSAGE else f"{joined[:_LONGEST_MESSAGE]}..."

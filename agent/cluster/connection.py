"""The way to the API server: settings from a kubeconfig or from the pod itself, and authenticated GETs.

Authentication and TLS are the kubernetes client's. Bodies are streamed and never become typed model objects,
which would cost more memory than all the rest of the agent.
"""

import contextlib
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock

import urllib3
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from urllib3.connection import HTTPConnection

from agent.cluster.failures import ConnectionSettingsError, Expired, StatusFailure, Unreachable, one_line
from agent.cluster.response_body import ResponseBody
from agent.cluster.statuses import status_message

_CONNECT_SECONDS = 5.0
_OPEN_CONNECTIONS_KEPT = 8
_GONE = 410
_UNAUTHORIZED = 401

_DEAD_PEER_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]
"""A watch only reads: without keepalive an API server that vanished is never missed."""


class ApiConnection:
    """Requests to one API server; safe to use from several threads.

    Credentials that are refused are read again: files with tokens and certificates get new content.
    """

    def __init__(self, configuration: Configuration, load: Callable[[], Configuration] | None = None) -> None:
        """`load` reads the settings again; it may raise ConnectionSettingsError."""
        self._load = load
        self._credentials = Lock()
        self._use(configuration)

    def _use(self, configuration: Configuration) -> None:
        configuration.connection_pool_maxsize = _OPEN_CONNECTIONS_KEPT
        configuration.socket_options = [*HTTPConnection.default_socket_options, *_DEAD_PEER_OPTIONS]
        pool: urllib3.PoolManager = ApiClient(configuration).rest_client.pool_manager
        self._configuration, self._pool = configuration, pool

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self._configuration.host)

    def get(self, path: str, query: Mapping[str, str], silence_seconds: float) -> ResponseBody:
        """Ask for a path and return the body of the answer, to be read and closed by the caller.

        `silence_seconds` is how long the server may send nothing. Raises Unreachable, Expired, StatusFailure.
        """
        try:
            response = self._pool.request(
                "GET",
                self.server + path,
                fields=dict(query),
                headers={"Accept": "application/json", "User-Agent": "lastcall", **self._authorization()},
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=silence_seconds),
                preload_content=False,
                retries=False,
            )
        except (urllib3.exceptions.HTTPError, OSError, config.ConfigException) as error:
            raise Unreachable(f"cannot reach the API server {self.server}: {one_line(str(error))}") from None
        body = ResponseBody(response)
        if response.status == 200:
            return body
        with body:
            message = status_message(body.beginning()) or response.reason or "no reason given"
        if response.status == _UNAUTHORIZED and self._load is not None:
            # What cannot be read just now may be being written; the next attempt finds out.
            with self._credentials, contextlib.suppress(ConnectionSettingsError):
                self._use(self._load())
        if response.status == _GONE:
            raise Expired(message)
        raise StatusFailure(response.status, message, _seconds(response.headers.get("Retry-After")))

    def _authorization(self) -> dict[str, str]:
        with self._credentials:
            settings = self._configuration.auth_settings()
        return {
            str(setting["key"]): str(setting["value"])
            for setting in settings.values()
            if setting["in"] == "header" and setting["value"]
        }


def connect(kubeconfig: Path | None) -> ApiConnection:
    """The connection that a kubeconfig file describes, or without one that of the pod the agent runs in.

    Nothing is sent. Raises ConnectionSettingsError.
    """

    def load() -> Configuration:
        configuration = Configuration()
        if kubeconfig is None:
            _load_pods_own(configuration)
        else:
            _load_file(kubeconfig, configuration)
        return configuration

    return ApiConnection(load(), load)


def _load_pods_own(configuration: Configuration) -> None:
    try:
        config.load_incluster_config(client_configuration=configuration)
    except (config.ConfigException, OSError) as error:
        raise ConnectionSettingsError(
            f"no kubeconfig given, and this is not a pod with a service account ({one_line(str(error))}): "
            "give --kubeconfig FILE"
        ) from None


def _load_file(kubeconfig: Path, configuration: Configuration) -> None:
    try:
        kubeconfig.read_bytes()
    except OSError as error:
        raise ConnectionSettingsError(
            f"cannot read kubeconfig {kubeconfig}: {error.strerror}: give a readable file with --kubeconfig"
        ) from None
    try:
        config.load_kube_config(str(kubeconfig), client_configuration=configuration, persist_config=False)
    except Exception as error:
        # The loader lets escape whatever the file's content provokes: YAML, type, key and other errors.
        raise ConnectionSettingsError(
            f"kubeconfig {kubeconfig} is not usable: {one_line(str(error)) or type(error).__name__}"
        ) from None
    if not str(configuration.host).startswith(("http://", "https://")):
        raise ConnectionSettingsError(
            f"kubeconfig {kubeconfig} is not usable: {configuration.host!r} is no http or https URL"
        )


def _seconds(header: str | None) -> float | None:
    return float(header) if header is not None and header.isascii() and header.isdigit() else None

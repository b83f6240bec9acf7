"""The connection to the API server; needs loopback only."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.cluster.connection import ApiConnection, connect
from agent.cluster.failures import ApiFailure, ConnectionSettingsError, Expired, StatusFailure, Unreachable
from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.kubeconfig import write_kubeconfig
from tests.cluster.scripted_server import CHUNKED, Answer, chunk, ok, scripted

STATUS = b'{"kind":"Status","message":"%s","code":%d}'


def always(*pieces: bytes) -> Answer:
    def answer(head: bytes) -> Iterator[bytes]:
        yield from pieces

    return answer


def connected(url: str, folder: Path) -> ApiConnection:
    return connect(write_kubeconfig(folder / "kubeconfig", url))


def refusal(code: int, message: bytes, *headers: bytes) -> bytes:
    body = STATUS % (message, code)
    head = b"HTTP/1.1 %d Refused\r\nContent-Length: %d\r\n" % (code, len(body))
    return head + b"".join(header + b"\r\n" for header in headers) + b"\r\n" + body


def test_the_token_of_the_kubeconfig_is_sent(tmp_path: Path) -> None:
    with ApiServer(token="secret") as api:
        connection = connect(write_kubeconfig(tmp_path / "right", api.url, "secret"))
        with connection.get("/api/v1/pods", {}, 5) as body:
            assert b'"PodList"' in body.whole()
        connection = connect(write_kubeconfig(tmp_path / "wrong", api.url, "guess"))
        with pytest.raises(StatusFailure, match=r"says 401: .*is the token valid") as failure:
            connection.get("/api/v1/pods", {}, 5)
        assert failure.value.code == 401


def test_a_token_file_is_read(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    with ApiServer(token="secret") as api:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url)
        kubeconfig.write_text(
            kubeconfig.read_text().replace('"user": {}', f'"user": {{"tokenFile": "{token}"}}')
        )
        with connect(kubeconfig).get("/api/v1/pods", {}, 5) as body:
            assert b'"PodList"' in body.whole()


def test_a_token_file_whose_token_was_replaced_costs_one_attempt(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    with ApiServer(token="first") as api:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url)
        kubeconfig.write_text(
            kubeconfig.read_text().replace('"user": {}', f'"user": {{"tokenFile": "{token}"}}')
        )
        connection = connect(kubeconfig)
        with connection.get("/api/v1/pods", {}, 5) as body:
            body.whole()
        api.token = "second"
        token.write_text("second")
        with pytest.raises(StatusFailure, match="says 401"):
            connection.get("/api/v1/pods", {}, 5)
        with connection.get("/api/v1/pods", {}, 5) as body:
            assert b'"PodList"' in body.whole()


def test_the_query_and_the_agents_name_are_sent(tmp_path: Path) -> None:
    with scripted(always(ok(b"{}"))) as server:
        with connected(server.url, tmp_path).get("/api/v1/pods", {"fieldSelector": "a=b c"}, 5) as body:
            assert body.whole() == b"{}"
        assert server.requests[0].startswith(b"GET /api/v1/pods?fieldSelector=a%3Db+c HTTP/1.1\r\n")
        assert b"User-Agent: lastcall\r\n" in server.requests[0]


def test_lines_come_when_they_are_complete_and_not_later(tmp_path: Path) -> None:
    two_lines_read = Event()

    def answer(head: bytes) -> Iterator[bytes]:
        yield CHUNKED + chunk(b'{"a":') + chunk(b'1}\n{"b":2}\n\n{"c"')
        assert two_lines_read.wait(3)
        yield chunk(b":3}\n") + chunk(b"")

    with scripted(answer) as server, connected(server.url, tmp_path).get("/", {}, 5) as body:
        lines = body.lines()
        assert [next(lines), next(lines)] == [b'{"a":1}', b'{"b":2}']
        two_lines_read.set()
        assert list(lines) == [b'{"c":3}']


@pytest.mark.parametrize(
    ("pieces", "complaint"),
    [
        ([CHUNKED, chunk(b'{"a":1}\n'), b"ff\r\n{"], "the connection broke"),
        ([CHUNKED, chunk(b'{"a":1}\n'), b"junk\r\n"], "the connection broke"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b'{"a":1}\n'], "the connection broke"),
    ],
)
def test_a_body_that_breaks_off_is_a_broken_connection(
    tmp_path: Path, pieces: list[bytes], complaint: str
) -> None:
    with (
        scripted(always(*pieces)) as server,
        connected(server.url, tmp_path).get("/", {}, 5) as body,
        pytest.raises(Unreachable, match=complaint),
    ):
        list(body.lines())


def test_an_error_status_gives_the_servers_words(tmp_path: Path) -> None:
    with scripted(always(refusal(429, b"slow down", b"Retry-After: 7"))) as server:
        with pytest.raises(StatusFailure, match=r"^the API server says 429: slow down$") as failure:
            connected(server.url, tmp_path).get("/", {}, 5)
        assert failure.value.retry_after_seconds == 7


def test_gone_is_an_expired_version(tmp_path: Path) -> None:
    with (
        scripted(always(refusal(410, b"too old resource version: 1 (936)"))) as server,
        pytest.raises(Expired, match="too old resource version"),
    ):
        connected(server.url, tmp_path).get("/", {}, 5)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 13\r\n\r\n<html></html>",
    ],
    ids=["nothing", "another protocol", "redirect", "gateway"],
)
def test_what_is_no_api_server_is_one_line(tmp_path: Path, answer: bytes) -> None:
    with (
        scripted(always(answer)) as server,
        pytest.raises(
            (Unreachable, StatusFailure), match=r"(cannot reach the API server|says \d+)"
        ) as failure,
    ):
        connected(server.url, tmp_path).get("/", {}, 5)
    assert "\n" not in str(failure.value)


def test_a_refused_connection_is_one_line_with_the_server(tmp_path: Path) -> None:
    with ApiServer() as api:
        url = api.url
    with pytest.raises(Unreachable, match=f"cannot reach the API server {url}: .*refused") as failure:
        connected(url, tmp_path).get("/", {}, 5)
    assert "\n" not in str(failure.value)


CLUSTER = "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'%s}}]\n"
CONTEXT = "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "junk",
        "[]",
        "{",
        "\x00",
        "apiVersion: v1\nkind: Config\n",
        "current-context: nowhere\ncontexts: []\nclusters: []\n",
        "clusters: 7\ncontexts: true\ncurrent-context: [x]\n",
    ],
)
def test_a_kubeconfig_of_no_use_is_one_line(tmp_path: Path, content: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(content)
    with pytest.raises(
        ConnectionSettingsError, match=f"^kubeconfig {kubeconfig} is not usable: ."
    ) as failure:
        connect(kubeconfig)
    assert "\n" not in str(failure.value)


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectionSettingsError, match=r"cannot read kubeconfig .*/absent: No such file"):
        connect(tmp_path / "absent")
    with pytest.raises(ConnectionSettingsError, match=r"cannot read kubeconfig .*: Is a directory"):
        connect(tmp_path)


def test_a_binary_kubeconfig_is_one_line(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(bytes(range(256)))
    with pytest.raises(ConnectionSettingsError, match="is not usable"):
        connect(kubeconfig)


def test_outside_a_pod_without_a_kubeconfig_the_flag_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConnectionSettingsError, match="give --kubeconfig FILE"):
        connect(None)


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ("certificate-authority-data: bm90IGEgY2VydGlmaWNhdGU=", "{}"),
        ("certificate-authority-data: '*'", "{}"),
        ("certificate-authority: /nowhere", "{}"),
        ("insecure-skip-tls-verify: true", "{client-certificate: /nowhere, client-key: /nowhere}"),
    ],
    ids=["no certificate", "no base64", "no file", "no client certificate"],
)
def test_certificates_of_no_use_are_one_line(tmp_path: Path, cluster: str, user: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    https = CLUSTER.replace("http", "https") % f", {cluster}"
    kubeconfig.write_text(f"{https}{CONTEXT}users: [{{name: u, user: {user}}}]\n")
    with pytest.raises((ConnectionSettingsError, Unreachable)) as failure:
        connect(kubeconfig).get("/", {}, 5)
    assert "\n" not in str(failure.value)


HEADS = st.sampled_from(
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        CHUNKED,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9, 8\r\n\r\n",
        b"HTTP/1.1 301 Moved\r\nLocation: \xff\r\n\r\n",
        b"HTTP/1.1 410 Gone\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 503 Busy\r\nRetry-After: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 401 No\r\n\r\n",
    ]
)


@settings(max_examples=60, deadline=None)
@given(HEADS, st.binary(max_size=80))
def test_no_answer_makes_anything_but_the_promised_failures(head: bytes, rest: bytes) -> None:
    with TemporaryDirectory() as folder, scripted(always(head + rest)) as server:
        connection = connected(server.url, Path(folder))
        with suppress(ApiFailure), connection.get("/", {}, 5) as body:
            list(body.lines())
        with suppress(ApiFailure), connection.get("/", {}, 5) as body:
            body.whole()

from pathlib import Path

from agent.lab.node.nginx_conf import IngressSettings, nginx_conf

DIRECTORY = Path("/tmp/lab")


def test_upstreams_are_kept_alive_and_never_taken_out() -> None:
    conf = nginx_conf(
        IngressSettings(), DIRECTORY, ["10.0.0.9", "fd00::9"], [("10.0.0.1", 8080), ("fd00::1", 8080)]
    )
    for line in (
        "listen 10.0.0.9:80;",
        "listen [fd00::9]:80;",
        "server 10.0.0.1:8080 max_fails=0;",
        "server [fd00::1]:8080 max_fails=0;",
        "keepalive 32;",
        "proxy_http_version 1.1;",
        "proxy_connect_timeout 2000ms;",
    ):
        assert line in conf
    assert "proxy_next_upstream" not in conf


def test_without_upstreams_the_answer_is_503() -> None:
    conf = nginx_conf(IngressSettings(), DIRECTORY, ["10.0.0.9"], [])
    assert "return 503;" in conf
    assert "upstream pods" not in conf


def test_a_connection_per_request_is_a_choice() -> None:
    conf = nginx_conf(IngressSettings(keepalive=0), DIRECTORY, ["10.0.0.9"], [("10.0.0.1", 8080)])
    assert "keepalive" not in conf


def test_every_path_is_in_the_private_directory() -> None:
    conf = nginx_conf(IngressSettings(), DIRECTORY, ["10.0.0.9"], [])
    paths = [word for line in conf.splitlines() for word in line.split() if word.startswith("/")]
    absolute = [path for path in paths if path != "/"]
    assert absolute
    assert all(path.startswith("/tmp/lab/") for path in absolute)

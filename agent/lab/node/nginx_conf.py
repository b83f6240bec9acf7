from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ACCESS_LOG_FIELDS = {
    "id": "arg_id",
    "ended": "msec",
    "seconds": "request_time",
    "method": "request_method",
    "status": "status",
    "upstream_addr": "upstream_addr",
    "upstream_status": "upstream_status",
    "upstream_seconds": "upstream_response_time",
    "upstream_connect_seconds": "upstream_connect_time",
}

TEMPLATE = """
user root;
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
lock_file {directory}/nginx.lock;
error_log {directory}/error.log info;
events {{ worker_connections 4096; }}
http {{
  log_format attempts escape=json '{log_format}';
  access_log {directory}/access.log attempts;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  client_max_body_size 0;
{upstream}
  server {{
{listens}
    location / {{ {answer} }}
  }}
}}
"""

PROXY = """
      proxy_pass http://pods;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_connect_timeout {connect_timeout_ms}ms;
      proxy_read_timeout {read_timeout_ms}ms;
      proxy_send_timeout {read_timeout_ms}ms;
    """


@dataclass(frozen=True)
class IngressSettings:
    """nginx as an ingress controller configures it: kept-alive upstream connections, `proxy_next_upstream`
    at its default (a failed GET is retried on another pod, a POST that was sent is not), and no pod taken
    out for failures, because the upstream list follows the endpoints.

    `keepalive` is the number of idle upstream connections kept; 0 makes a new one per request. `ipv6`
    connects to the pods' IPv6 addresses. Times in seconds.
    """

    port: int = 80
    keepalive: int = 32
    connect_timeout_s: float = 2.0
    read_timeout_s: float = 8.0
    ipv6: bool = False


def nginx_conf(
    settings: IngressSettings, directory: Path, addresses: Sequence[str], upstreams: Sequence[tuple[str, int]]
) -> str:
    """nginx's configuration: listens on `addresses`, proxies to `upstreams`; with none it answers 503."""
    listens = "\n".join(f"    listen {_bracketed(address)}:{settings.port};" for address in addresses)
    servers = "\n".join(f"    server {_bracketed(host)}:{port} max_fails=0;" for host, port in upstreams)
    keepalive = f"    keepalive {settings.keepalive};" if settings.keepalive else ""
    upstream = f"  upstream pods {{\n{servers}\n{keepalive}\n  }}" if upstreams else ""
    proxy = PROXY.format(
        connect_timeout_ms=round(settings.connect_timeout_s * 1000),
        read_timeout_ms=round(settings.read_timeout_s * 1000),
    )
    return TEMPLATE.format(
        directory=directory,
        log_format="{" + ",".join(f'"{name}":"${field}"' for name, field in ACCESS_LOG_FIELDS.items()) + "}",
        upstream=upstream,
        listens=listens,
        answer=proxy if upstreams else "return 503;",
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host

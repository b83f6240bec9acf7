"""The command `agent run`."""

import argparse
import logging
import os
import signal
import sys
import threading
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from agent.cluster import kube_proxy
from agent.cluster.failures import ConnectionSettingsError
from agent.core.recording import RecordingHeader
from agent.kernel.btf_headers import DEFAULT_CACHE
from agent.kernel.capabilities import demand_capabilities
from agent.kernel.capability_drop import drop_capabilities
from agent.kernel.errors import KernelSideError
from agent.outputs.http_server import HttpServer
from agent.outputs.prometheus import AgentCollector
from agent.run.node_addresses import node_addresses
from agent.run.node_agent import NodeAgent
from agent.run.recorder import Recorder
from agent.run.settings import Settings, parse_listen, parse_record_limit, parse_retention
from agent.run.threads import say_in_one_line

DEFAULT_LISTEN = ":9435"
RETENTION_SECONDS = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `agent run`; each has an environment variable."""

    def setting(flag: str, metavar: str, help_text: str, default: str | None = None) -> None:
        variable = "LASTCALL_" + flag.upper().replace("-", "_")
        shown = f" (default: {default})" if default else ""
        parser.add_argument(
            f"--{flag}",
            metavar=metavar,
            default=os.environ.get(variable, default),
            help=f"{help_text}{shown} [{variable}]",
        )

    setting("node-name", "NAME", "this node's name in the API", os.uname().nodename)
    setting("kubeconfig", "FILE", "how to reach the API server (default: the pod's service account)")
    setting("listen", "HOST:PORT", "where to serve metrics; without HOST on every address", DEFAULT_LISTEN)
    setting("kube-proxy-metrics", "URL", "this node's kube-proxy", kube_proxy.DEFAULT_URL)
    setting("cache-dir", "DIR", "private directory for headers made from BTF", str(DEFAULT_CACHE))
    setting("record", "FILE", "write what the agent takes in, for agent replay")
    setting("record-limit", "MB", "about how much disk FILE and FILE.1 may take", "64")
    setting("retention", "SECONDS", "how long a pod's series stay after it is gone", str(RETENTION_SECONDS))


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT. Returns 0 after a clean end, 1 when the agent could not run."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        settings = _settings(args)
        _demand_root()
        demand_capabilities()
        return _serve(settings)
    except (KernelSideError, ConnectionSettingsError, ValueError) as error:
        print(f"agent run: {error}", file=sys.stderr)
        return 1


def _settings(args: argparse.Namespace) -> Settings:
    host, port = parse_listen(args.listen)
    if not args.node_name:
        raise ValueError("the node has no name: give the one it has in the API with --node-name")
    return Settings(
        node_name=args.node_name,
        kubeconfig=Path(args.kubeconfig) if args.kubeconfig else None,
        listen_host=host,
        listen_port=port,
        kube_proxy_metrics=args.kube_proxy_metrics,
        cache=Path(args.cache_dir),
        retention_seconds=parse_retention(args.retention),
        record=Path(args.record) if args.record else None,
        record_limit_bytes=parse_record_limit(args.record_limit),
    )


def _demand_root() -> None:
    if os.geteuid() != 0:
        raise KernelSideError("must be root to load BPF programs: run with sudo, or as the DaemonSet does")


def _serve(settings: Settings) -> int:
    threading.excepthook = say_in_one_line
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server = _listen(settings)
    try:
        agent = NodeAgent(settings, _recorder(settings))
        # The programs are attached, and no other thread runs yet.
        drop_capabilities()
        try:
            agent.start()
            server.start(AgentCollector(agent.snapshot, _version()), agent.waiting_for, agent.failed)
            logging.info("watching the pods of node %s; metrics on port %d", settings.node_name, server.port)
            ended.wait()
        finally:
            agent.stop()
    finally:
        server.stop()
    return 0


def _recorder(settings: Settings) -> Recorder | None:
    if settings.record is None:
        return None
    addresses = tuple(sorted(node_addresses(), key=str))
    header = RecordingHeader(settings.node_name, _version(), settings.retention_seconds, addresses)
    try:
        return Recorder(settings.record, settings.record_limit_bytes, header)
    except OSError as error:
        raise ValueError(f"cannot record to {settings.record}: {error.strerror}") from None


def _listen(settings: Settings) -> HttpServer:
    try:
        return HttpServer(settings.listen_host, settings.listen_port)
    except OSError as error:
        host = settings.listen_host
        where = f"[{host}]:{settings.listen_port}" if ":" in host else f"{host}:{settings.listen_port}"
        raise ValueError(
            f"cannot listen on {where} ({error.strerror}): choose another with --listen"
        ) from None


def _version() -> str:
    try:
        return version("lastcall")
    except PackageNotFoundError:
        return "unknown"

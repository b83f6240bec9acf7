"""The command `agent doctor`."""

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path

from agent.cluster import kube_proxy
from agent.doctor.check import Check, Status, usable
from agent.doctor.checks import all_checks
from agent.doctor.gather import gather
from agent.kernel.btf_headers import DEFAULT_CACHE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `agent doctor`; those that `agent run` has too mean the same there."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        default=os.environ.get("LASTCALL_KUBECONFIG"),
        help="how to reach the API server (default: the pod's service account) [LASTCALL_KUBECONFIG]",
    )
    parser.add_argument(
        "--node-name",
        metavar="NAME",
        default=os.environ.get("LASTCALL_NODE_NAME", platform.node()),
        help="this node's name in the API (default: the host name) [LASTCALL_NODE_NAME]",
    )
    parser.add_argument(
        "--kube-proxy-metrics",
        metavar="URL",
        default=os.environ.get("LASTCALL_KUBE_PROXY_METRICS", kube_proxy.DEFAULT_URL),
        help="this node's kube-proxy (default: %(default)s) [LASTCALL_KUBE_PROXY_METRICS]",
    )
    parser.add_argument(
        "--cache-dir",
        metavar="DIR",
        default=os.environ.get("LASTCALL_CACHE_DIR", str(DEFAULT_CACHE)),
        help="private directory for headers made from BTF (default: %(default)s) [LASTCALL_CACHE_DIR]",
    )
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="default: %(default)s"
    )


def run(args: argparse.Namespace) -> int:
    """Prints every check. Returns 0 if the agent can run on this node, 1 if not."""
    checks = all_checks(
        gather(args.kubeconfig, args.node_name, args.kube_proxy_metrics, Path(args.cache_dir))
    )
    if args.output == "json":
        json.dump(_as_json(checks), sys.stdout, indent=2)
        print()
    else:
        for line in _as_text(checks):
            print(line)
    return 0 if usable(checks) else 1


def _as_json(checks: tuple[Check, ...]) -> dict[str, object]:
    return {
        "usable": usable(checks),
        "checks": [asdict(check) | {"status": check.status.value} for check in checks],
    }


def _as_text(checks: tuple[Check, ...]) -> list[str]:
    width = max(len(check.name) for check in checks)
    lines = [
        f"{check.status.value:<4}  {check.name:<{width}}  {check.found}"
        + (f". {check.remedy}" if check.remedy else "")
        for check in checks
    ]
    warnings = sum(check.status is Status.WARN for check in checks)
    failures = sum(check.status is Status.FAIL for check in checks)
    verdict = "can" if usable(checks) else "cannot"
    return [*lines, f"This node {verdict} run Lastcall: {failures} failed, {warnings} to look at."]

"""Asks this node for the facts. Nothing here raises for what a node may lack: that is a fact too."""

import ctypes
import importlib
import os
import platform
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from agent.doctor.api import ask_api
from agent.doctor.facts import CgroupLayout, Facts, HookProbe, Probe, Tracefs
from agent.kernel.btf_headers import VMLINUX_BTF
from agent.kernel.capabilities import OWN_STATUS, effective_capabilities
from agent.kernel.errors import KernelSideError
from agent.kernel.loader import load_programs
from agent.kernel.namespaces import cookie_here
from agent.kernel.processes import pod_processes

LOCKDOWN = Path("/sys/kernel/security/lockdown")
MOUNTS = Path("/proc/self/mountinfo")

ANSWER_SECONDS = 3.0
KUBE_PROXY_METRICS_BYTES = 32 * 1024 * 1024
"""Some distributions serve every component's metrics together: several MB."""


def gather(kubeconfig: str | None, node_name: str, kube_proxy_metrics: str, cache: Path) -> Facts:
    """Everything that the checks judge; takes a few seconds, because each hook is attached once."""
    uid = os.geteuid()
    mounts = tuple(mount_points(MOUNTS.read_text()))
    return Facts(
        effective_uid=uid,
        capabilities=effective_capabilities(OWN_STATUS.read_text()),
        kernel_release=platform.release(),
        btf=_btf(),
        tracefs=find_tracefs(mounts),
        bcc=_bcc(),
        bpftool=_bpftool(),
        libbpf=_libbpf(),
        lockdown=_lockdown(),
        hooks=_hooks(cache) if uid == 0 else HookProbe(problem="not tried: only root may attach programs"),
        cgroups=cgroup_layout(mounts),
        pods=len({process.pod_uid for process in pod_processes()}),
        api=ask_api(kubeconfig, node_name, ANSWER_SECONDS),
        kube_proxy=ask_kube_proxy(kube_proxy_metrics),
    )


def _btf() -> Probe:
    try:
        with VMLINUX_BTF.open("rb") as file:
            file.read(1)
    except FileNotFoundError:
        return Probe(problem=f"no {VMLINUX_BTF}")
    except OSError as error:
        return Probe(problem=f"{VMLINUX_BTF}: {error.strerror}")
    return Probe(answer=str(VMLINUX_BTF))


def mount_points(mountinfo: str) -> Iterator[tuple[str, Path]]:
    """File system type and mount point, by proc_pid_mountinfo(5)."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4]
        yield after.split(" ")[0], Path(point.replace("\\040", " "))


def find_tracefs(mounts: tuple[tuple[str, Path], ...]) -> Tracefs | None:
    """Where tracefs is mounted; the first place counts."""
    mount = next((point for kind, point in mounts if kind == "tracefs"), None)
    return Tracefs(mount, os.access(mount / "events", os.R_OK)) if mount else None


def _bcc() -> Probe:
    try:
        module = importlib.import_module("bcc")
    except (ImportError, OSError) as error:
        return Probe(problem=f"cannot be imported: {error}")
    if not hasattr(module, "BPF"):
        return Probe(problem=f"{module.__file__} is another program of that name")
    return Probe(answer=f"{module.__version__}")


def _bpftool() -> Probe:
    path = shutil.which("bpftool", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin")
    if path is None:
        return Probe(problem="not found")
    try:
        done = subprocess.run(
            [path, "version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Probe(problem=f"{path} does not run: {error}")
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).strip().splitlines()
        return Probe(
            problem=f"{path} does not run: {complaint[0] if complaint else f'exit {done.returncode}'}"
        )
    return Probe(answer=f"{path} {done.stdout.split()[1]}")


def _libbpf() -> Probe:
    try:
        library = ctypes.CDLL("libbpf.so.1")
    except OSError as error:
        return Probe(problem=str(error))
    library.libbpf_version_string.restype = ctypes.c_char_p
    return Probe(answer=library.libbpf_version_string().decode())


def _lockdown() -> str | None:
    """The mode in brackets, as in `none [integrity] confidentiality`."""
    try:
        modes = LOCKDOWN.read_text()
    except OSError:
        return None
    return modes.partition("[")[2].partition("]")[0]


def _hooks(cache: Path) -> HookProbe:
    """Attaches what the agent attaches, as the agent does it, and detaches it at once."""
    try:
        programs = load_programs(cookie_here(), cache)
    except KernelSideError as error:
        return HookProbe(problem=str(error))
    programs.close()
    return HookProbe(programs.statuses)


def cgroup_layout(mounts: tuple[tuple[str, Path], ...]) -> CgroupLayout:
    """Every mounted hierarchy, and the kubelet's cgroups in them."""
    unified = next((point for kind, point in mounts if kind == "cgroup2"), None)
    legacy = tuple(point for kind, point in mounts if kind == "cgroup")
    roots = (*((unified,) if unified else ()), *legacy)
    return CgroupLayout(unified, legacy, tuple(found for root in roots for found in kubepods_below(root)))


def kubepods_below(root: Path) -> Iterator[Path]:
    """The kubelet's cgroup is at the root, or below the cgroups of a node that is itself a container."""
    for pattern in ("kubepods*", "*/kubepods*", "*/*/kubepods*"):
        yield from (path for path in root.glob(pattern) if path.is_dir())


def ask_kube_proxy(url: str) -> Probe:
    """Whether kube-proxy's own metrics are served there; reads no further than the first of them."""
    read = 0
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:
            for line in answer:
                if line.startswith(b"kubeproxy_sync_proxy_rules_"):
                    return Probe(answer=url)
                read += len(line)
                if read > KUBE_PROXY_METRICS_BYTES:
                    break
    except (OSError, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
        return Probe(problem=f"no answer from {url}: {reason}")
    return Probe(problem=f"{url} answers, but not with kube-proxy's metrics")

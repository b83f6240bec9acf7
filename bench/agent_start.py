"""How long `agent run` takes until it is ready, and what memory it holds then."""

import re
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from agent.lab.agent_process import AgentProcess
from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.kubeconfig import write_kubeconfig
from agent.lab.controlplane.pod_objects import (
    PodIdentity,
    begin_creating,
    pending_pod,
    report_running,
    schedule,
)
from agent.lab.controlplane.pod_template import PodTemplate
from agent.lab.controlplane.resources import PODS, JsonObject

NODE = "bench"
HOST_ADDRESS = "192.0.2.1"
NO_KUBE_PROXY = "http://127.0.0.1:9/metrics"


@dataclass(frozen=True)
class AgentStart:
    """Seconds from the start of the process until /readyz said yes, and resident memory after one scrape."""

    ready_seconds: float
    resident_megabytes: float


def start_agent(pods: int, directory: Path) -> AgentStart:
    """Start it beside an API server stand-in that lists so many pods of this node, measure, and end it."""
    with ApiServer() as api:
        for number in range(pods):
            api.store.create(PODS, running_pod(number))
        kubeconfig = write_kubeconfig(directory / "kubeconfig", api.url)
        agent = AgentProcess(NODE, kubeconfig, NO_KUBE_PROXY, directory / "agent.log")
        try:
            listed = len(set(re.findall(r'pod="([^"]+)"', agent.metrics())))
            if listed != pods:
                raise SystemExit(f"the agent knows {listed} pods and not {pods}")
            return AgentStart(agent.ready_seconds, agent.resident_megabytes())
        finally:
            agent.stop()


def running_pod(number: int) -> JsonObject:
    """A pod of this node as the API lists it, of a Deployment of ten; nothing runs behind it."""
    replica_set = f"web{number // 10}-6d4cf56db6"
    identity = PodIdentity(
        "bench",
        f"{replica_set}-{number:05d}",
        str(uuid.uuid4()),
        f"web{number // 10}",
        replica_set,
        str(uuid.uuid4()),
    )
    now = time.time()
    pod = schedule(pending_pod(identity, PodTemplate(argv=("server",)), now), NODE, now)
    begin_creating(pod, HOST_ADDRESS, now)
    address = f"198.18.{number // 250}.{number % 250 + 1}"
    return report_running(pod, (address,), f"{number:064x}", now, ready=True)

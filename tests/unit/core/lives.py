"""Pods and records for tests of the core."""

from ipaddress import IPv4Address

from agent.core.records import Container, Pod, PreStop, Workload

SECOND = 10**9
NETNS = 41


def a_pod(
    uid: str = "uid-1",
    *,
    address: str = "10.0.0.1",
    deleted_ns: int | None = None,
    prestop: PreStop | None = None,
    finished: bool = False,
    host_network: bool = False,
) -> Pod:
    """A pod of the Deployment `web`."""
    container = Container("app", "c" * 64, prestop, (8080,), 0, running=True, exit_code=None)
    return Pod(
        uid=uid,
        namespace="shop",
        name=f"web-{uid}",
        node="node",
        addresses=(IPv4Address(address),),
        host_network=host_network,
        workload=Workload("Deployment", "web"),
        containers=(container,),
        grace_seconds=30,
        deletion_requested_ns=deleted_ns,
        finished=finished,
        ready=True,
        cgroup_uid=uid,
    )

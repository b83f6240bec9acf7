"""Node and Service objects."""

from agent.lab.controlplane.resources import JsonObject
from agent.lab.controlplane.slice_objects import ServiceIdentity
from agent.lab.controlplane.timestamps import api_time


def node_object(name: str, address: str, now: float) -> JsonObject:
    """A ready node."""
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "uid": "b1f3a0c4-5f2e-4c7d-9d7b-0a1d2c3e4f50",
            "creationTimestamp": api_time(now),
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "spec": {},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "lastTransitionTime": api_time(now),
                }
            ],
        },
    }


def service_object(service: ServiceIdentity, cluster_ip: str, port: int, now: float) -> JsonObject:
    """A ClusterIP Service on `port` of its address, for the service's pods."""
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {
            "name": service.name,
            "namespace": service.namespace,
            "uid": service.uid,
            "creationTimestamp": api_time(now),
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": cluster_ip,
            "selector": {"app": service.name},
            "ports": [{"name": "http", "protocol": "TCP", "port": port, "targetPort": service.port}],
        },
        "status": {"loadBalancer": {}},
    }

"""The Deployment player: creates a workload's pods and rolls them over as the Deployment controller does."""

import random
import uuid
from dataclasses import dataclass

from agent.lab.controlplane.kubelet import Kubelet
from agent.lab.controlplane.pod_life import PodLife
from agent.lab.controlplane.pod_objects import PodIdentity
from agent.lab.controlplane.pod_template import PodTemplate

_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""What generated names are made of: no vowels, so that they spell nothing."""

_READY_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Strategy:
    """A rolling update's strategy; only (1, 0), the careful one, and (0, 1) are played."""

    max_surge: int
    max_unavailable: int


class Deployment:
    """A workload of `replicas` pods. `pods` are those not deleted, `deleted` those that were, in order.

    `chance` makes the names. UIDs are always new ones: an agent finds a pod's processes by the UID in their
    cgroup, and another lab may run on this machine.
    """

    def __init__(
        self, kubelet: Kubelet, namespace: str, name: str, replicas: int, chance: random.Random
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.replicas = replicas
        self.pods: list[PodLife] = []
        self.deleted: list[PodLife] = []
        self._kubelet = kubelet
        self._chance = chance

    def start(self, template: PodTemplate) -> None:
        """Create all pods and wait until they are ready. Raises TimeoutError."""
        replica_set = self._replica_set()
        self.pods = [self._create(template, *replica_set) for _ in range(self.replicas)]
        for pod in self.pods:
            pod.wait_ready(_READY_SECONDS)

    def roll(self, template: PodTemplate, strategy: Strategy) -> None:
        """Replace every pod by one of the template; returns when all are ready. Raises TimeoutError."""
        self._replace(list(self.pods), template, strategy)

    def replace_one(self, template: PodTemplate, strategy: Strategy) -> None:
        """Replace only the first pod; returns when the new one is ready. Raises TimeoutError."""
        self._replace(self.pods[:1], template, strategy)

    def _replace(self, pods: list[PodLife], template: PodTemplate, strategy: Strategy) -> None:
        replica_set = self._replica_set()
        for old in pods:
            if strategy.max_surge == 0:
                self.delete(old)
            new = self._create(template, *replica_set)
            self.pods.append(new)
            new.wait_ready(_READY_SECONDS)
            if strategy.max_surge > 0:
                self.delete(old)

    def delete(self, pod: PodLife) -> None:
        """Delete one pod."""
        self._kubelet.delete(pod)
        self.pods.remove(pod)
        self.deleted.append(pod)

    def wait_deleted(self) -> None:
        """Wait until every deleted pod is gone from the API. Raises TimeoutError."""
        for pod in self.deleted:
            pod.wait_deleted(pod.template.grace_seconds + _READY_SECONDS)

    def _replica_set(self) -> tuple[str, str]:
        return f"{self.name}-{self._letters(10)}", str(
            uuid.UUID(int=self._chance.getrandbits(128), version=4)
        )

    def _create(self, template: PodTemplate, replica_set: str, replica_set_uid: str) -> PodLife:
        identity = PodIdentity(
            namespace=self.namespace,
            name=f"{replica_set}-{self._letters(5)}",
            uid=str(uuid.uuid4()),
            workload=self.name,
            replica_set=replica_set,
            replica_set_uid=replica_set_uid,
        )
        return self._kubelet.create(identity, template)

    def _letters(self, count: int) -> str:
        return "".join(self._chance.choices(_NAME_LETTERS, k=count))

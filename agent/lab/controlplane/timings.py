"""When the kubelet does what, in seconds, as recorded on a real node (Kubernetes 1.36, containerd 2.1)."""

SCHEDULED = 0.012
"""From a pod's creation to its binding."""

KUBELET_SEES_DELETION = 0.005
"""From the DELETE call to the start of the preStop hook."""

KUBELET_REPORTS_DELETION = 0.03
"""From the DELETE call to the status update that acknowledges it."""

STOP_CALL = 0.012
"""From the end of the preStop hook (or the deletion) to the stop signal: the call to the runtime."""

MINIMUM_GRACE = 2.0
"""What the kubelet leaves a container after its preStop hook, whatever is left of the grace period."""

PAUSE_KILLED = 0.05
"""From the container's exit to the SIGKILL of the pause process."""

NETWORK_REMOVED = 0.2
"""From the container's exit to the removal of the pod's network."""

FINISHED_REPORTED = 0.265
"""From the container's exit to the status that says so."""

DELETED_FINALLY = 1.02
"""From the container's exit to the kubelet's own delete with grace 0."""

DELETED_EVENT = 0.003
"""From that delete to the object's removal."""

FIRST_PROBE = 0.3
"""From a container's start to its first probe. The recorded server answered within milliseconds; this lab's
is an interpreter, and a first probe that comes too early would cost a whole period."""

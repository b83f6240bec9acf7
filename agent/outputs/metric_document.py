"""Writes docs/metrics.md out of the table of metrics: `python -m agent.outputs.metric_document`."""

import sys
from collections.abc import Iterable
from enum import Enum

from agent.core.boundaries import Boundary
from agent.core.kinds import Kind
from agent.core.ledger import LAG_BUCKETS, NAMED_SOURCES
from agent.core.life import Stage
from agent.core.phases import Phase
from agent.core.records import SourceKind
from agent.outputs.metric_table import METRICS, Metric

_HEAD = """# Metrics

Written by `make docs` from the agent's table of metrics; a test keeps it true.

The agent serves them on port 9435 at `/metrics`. Names and labels are a contract. Series of a pod appear at
0 when it becomes known, stay for 10 minutes after it is gone (`--retention`), and then go; those of its
workload stay. A gauge whose value was not observed is absent, never 0. The node is not a label: Prometheus
adds it.

| name | type | labels | what |
|---|---|---|---|
"""


def metrics_document() -> str:
    """The whole of docs/metrics.md."""
    return _HEAD + "".join(_row(metric) for metric in METRICS) + _values()


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.type.value} | {labels} | {metric.help} |\n"


def _values() -> str:
    bounds = ", ".join(f"{bound:g}" for bound in LAG_BUCKETS)
    return f"""
## Values of labels

- `kind`: {_list(Kind)} ([what each means](kinds-and-phases.md))
- `phase`: {_list(Phase)}
- `event`: {_list(Boundary)}
- `stage`: {_list(Stage)}
- `source_kind`: {_list(SourceKind)}, `other`. At most {NAMED_SOURCES} addresses of a
  workload have a name of their own; the rest is `other`. A pod is named by its workload, a node by its name
  or address, anything else by its address. `unknown` is an address that has not been looked up yet (its count
  moves to its owner's series then), or that only pods list which have finished or have started since. The API
  server finds a pod by its first address only: addresses of a second family stay `unknown` where they are
  those of another node's pods. An address of another node's pod whose object is deleted before the lookup is
  `external`.
- `workload_kind`: `Deployment`, `StatefulSet`, `DaemonSet`, `Job`, `CronJob`, `Pod` for a pod without an
  owner, or the kind of whatever else owns the pod.

Buckets of the histograms, in seconds: {bounds}.
"""


def _list(values: Iterable[Enum]) -> str:
    return ", ".join(f"`{value.value}`" for value in values)


if __name__ == "__main__":
    sys.stdout.write(metrics_document())

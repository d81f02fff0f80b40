"""Each process of a pipeline as the topology, Compose and the chart have it, in the same words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from deploy.prometheus.targets import host_of
from deploy.resources import memory_of
from dovetail.topology import CONTROL, Topology

PORT = 8080
_MIB = 1 << 20
_UNITS = {"k": 1 << 10, "m": _MIB, "g": 1 << 30}


@dataclass(frozen=True)
class Deployed:
    """What has to be the same, wherever a process runs."""

    service: str
    node: str | None
    link: str | None
    port: int
    request: int
    limit: int
    ready: str


def of_topology(pipeline):
    """By host name, as the data flows."""
    found = {}
    for process in Topology(pipeline).processes:
        link = int(process.service.partition(".")[2] or 1)
        memory = memory_of(process.kind, pipeline.link(link))
        per_node = process.node is not None
        found[host_of(process)] = Deployed(
            process.kind,
            str(process.node) if per_node else None,
            str(link) if per_node else None,
            PORT,
            memory.request,
            memory.limit,
            "/ready",
        )
    return found


def of_compose(compose, kinds, layout="split"):
    """Of the layout that is no profile, or of one that is, with control."""
    found = {}
    for name, one in compose["services"].items():
        command = one.get("command", [None])
        own = [] if layout == "split" or command[0] == CONTROL else [layout]
        if command[0] in kinds and one.get("profiles", []) == own:
            told = one["environment"]
            found[name] = Deployed(
                command[0],
                told.get("DOVETAIL_NODE"),
                told.get("DOVETAIL_LINK"),
                int(one["ports"][0].rpartition(":")[2]) if "ports" in one else PORT,
                _size(one["mem_reservation"]),
                _size(one["mem_limit"]),
                one["healthcheck"]["test"][-1],
            )
    return found


def of_chart(objects, prefix):
    """A StatefulSet's pods one by one, as Kubernetes names them."""
    found = {}
    for one in workloads(objects):
        name = one["metadata"]["name"].removeprefix(f"{prefix}-")
        (container,) = one["spec"]["template"]["spec"]["containers"]
        told = {variable["name"]: variable for variable in container["env"]}
        nodes = one["spec"]["replicas"] if one["kind"] == "StatefulSet" else None
        resources = container["resources"]
        for node in [None] if nodes is None else range(nodes):
            found[name if node is None else f"{name}-{node}"] = Deployed(
                container["args"][0],
                None if node is None else _ordinal(told["DOVETAIL_NODE"], node),
                told["DOVETAIL_LINK"]["value"] if "DOVETAIL_LINK" in told else None,
                container["ports"][0]["containerPort"],
                int(resources["requests"]["memory"]),
                int(resources["limits"]["memory"]),
                container["readinessProbe"]["httpGet"]["path"],
            )
    return found


def workloads(objects):
    return [one for one in objects if one["kind"] in ("Deployment", "StatefulSet")]


def labels_of(pod, monitor, index=None):
    """The labels that a target has after the relabelings of a ServiceMonitor."""
    meta = {
        "__meta_kubernetes_pod_label_" + "".join(c if c.isalnum() else "_" for c in name): value
        for name, value in pod["metadata"]["labels"].items()
    }
    if index is not None:
        meta["__meta_kubernetes_pod_label_apps_kubernetes_io_pod_index"] = str(index)
    labels = {}
    for rule in monitor["spec"]["endpoints"][0]["relabelings"]:
        value = ";".join(meta.get(name, "") for name in rule.get("sourceLabels", ()))
        match = re.fullmatch(rule.get("regex", "(.*)"), value)
        if match:
            labels[rule["targetLabel"]] = rule.get("replacement") or match.group(1)
    return {name: value for name, value in labels.items() if value}


def _ordinal(variable, node):
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.labels['apps.kubernetes.io/pod-index']"
    return str(node)


def _size(text):
    return int(text[:-1]) * _UNITS[text[-1]]

"""The chart, rendered by Helm for all sets of values, by the schemas of several Kubernetes."""

from __future__ import annotations

import json
import subprocess

import pytest

from deploy.local.home import CHECKOUT
from dovetail.pipeline.load import load_pipeline
from dovetail.pipeline.spec import Layout
from dovetail.topology import INTAKE, Topology
from tests.deploy import tools
from tests.deploy.render import CHART, FOLDER, SETS, render, rendered
from tests.deploy.schemas import problems
from tests.unit import deployment_kit as kit

CHAIN = """
name: orders
source: {fields: {order_id: int, product_id: int, customer_id: int}}
key: product_id
master: {table: products, columns: [vendor_id], snapshot: /var/lib/dovetail/snapshots}
memory: 1.5GiB
nodes: 3
slots: 12
then:
  - {key: customer_id, master: {table: customers, columns: [segment]}, memory: 64MB}
  - {key: vendor_id, fields: {vendor_id: int}, master: {table: vendors, columns: [city]}}
"""
VALUES = {
    "default": [],
    "hardened": ["-f", CHART / "ci/hardened-values.yaml"],
    "hpa": ["-f", CHART / "ci/hpa-values.yaml"],
    "spark": ["--set", "environment.DOVETAIL_ENGINE=spark"],
    "spark by its operator": [
        *("-f", CHART / "ci/hardened-values.yaml"),
        *("--set", "environment.DOVETAIL_ENGINE=spark"),
    ],
    "fused": ["--set", "environment.DOVETAIL_LAYOUT=fused"],
    "fused on one node": [
        *("--set", "environment.DOVETAIL_LAYOUT=fused"),
        *("--set-string", "environment.DOVETAIL_NODES=1"),
    ],
    "fused and scaled": [
        *("-f", CHART / "ci/hardened-values.yaml"),
        *("--set", "environment.DOVETAIL_LAYOUT=fused"),
    ],
    "fused by hpa": [
        *("-f", CHART / "ci/hpa-values.yaml"),
        *("--set", "environment.DOVETAIL_LAYOUT=fused"),
    ],
    "no spark": ["--set", "spark.kind=off"],
    "chain": ["--set-file", "pipeline=chain.yaml"],
    "chain on spark": [
        *("--set-file", "pipeline=chain.yaml"),
        *("--set", "environment.DOVETAIL_ENGINE=spark"),
    ],
    "chain, fused": [
        *("--set-file", "pipeline=chain.yaml"),
        *("--set", "environment.DOVETAIL_LAYOUT=fused"),
    ],
    "chain, fused and scaled": [
        *("--set-file", "pipeline=chain.yaml"),
        *("-f", CHART / "ci/hardened-values.yaml"),
        *("--set", "environment.DOVETAIL_LAYOUT=fused"),
    ],
    "chain, scaled": [
        *("--set-file", "pipeline=chain.yaml"),
        *("-f", CHART / "ci/hardened-values.yaml"),
    ],
}


@pytest.fixture(scope="session")
def helm():
    return tools.helm()


@pytest.fixture(scope="session")
def chart(helm, tmp_path_factory):
    """Renders a set of values by its name."""
    file = tmp_path_factory.mktemp("chart") / "chain.yaml"
    file.write_text(CHAIN)

    def of(name, version="1.31"):
        options = [str(word).replace("chain.yaml", str(file)) for word in VALUES[name]]
        return render(helm, *options, version=version)

    return of


@pytest.mark.timeout(3600)
def test_helm_finds_nothing_to_complain_about(helm):
    for values in ((), ("-f", CHART / "ci/hardened-values.yaml")):
        command = [helm, "lint", "--strict", CHART, "--kube-version", "1.31", *values]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", tools.KUBERNETES)
@pytest.mark.parametrize("values", VALUES)
def test_kubernetes_takes_every_object(chart, values, version):
    found = [problem for one in chart(values, version[1:]) for problem in problems(one, version)]
    assert found == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda pod: pod["containers"][0].update(imagePullPolice="Always"), "imagePullPolice"),
        (lambda pod: pod.update(terminationGracePeriodSeconds="70"), "terminationGrace"),
        (lambda pod: pod["containers"][0].pop("name"), "name"),
    ],
)
def test_the_schemas_would_notice(chart, change, told):
    one = next(one for one in chart("default") if one["kind"] == "StatefulSet")
    change(one["spec"]["template"]["spec"])
    assert any(told in problem for problem in problems(one, tools.KUBERNETES[0]))


def test_an_unknown_field_of_a_kind_of_others_is_noticed(chart):
    one = next(one for one in chart("hardened") if one["kind"] == "ScaledObject")
    one["spec"]["maxReplicas"] = 4
    assert problems(one, tools.KUBERNETES[0])


@pytest.mark.parametrize("values", VALUES)
def test_no_two_objects_have_one_name(chart, values):
    names = [(one["kind"], one["metadata"]["name"]) for one in chart(values)]
    assert len(names) == len(set(names))


@pytest.fixture(scope="module")
def topologies(tmp_path_factory):
    """Of the chain, by its layout."""
    file = tmp_path_factory.mktemp("pipeline") / "chain.yaml"
    file.write_text(CHAIN)
    return {layout: Topology(load_pipeline(file, {"DOVETAIL_LAYOUT": layout})) for layout in Layout}


@pytest.mark.parametrize(("values", "layout"), [("chain", "split"), ("chain, fused", "fused")])
def test_of_a_chain_it_has_the_processes_of_the_topology(chart, topologies, values, layout):
    expected = kit.of_topology(topologies[layout].pipeline)
    assert kit.of_chart(chart(values), "orders") == expected


def test_a_single_fused_node_is_one_pod(chart):
    sales = load_pipeline(
        CHECKOUT / "pipeline.yaml", {"DOVETAIL_LAYOUT": "fused", "DOVETAIL_NODES": "1"}
    )
    assert kit.of_chart(chart("fused on one node"), "sales") == kit.of_topology(sales)


@pytest.mark.parametrize(
    ("values", "layout"), [("chain, scaled", "split"), ("chain, fused and scaled", "fused")]
)
def test_of_a_chain_every_node_is_scaled_by_what_it_reads(chart, topologies, values, layout):
    topology = topologies[layout]
    triggers = {
        (trigger["metadata"]["topic"], trigger["metadata"]["consumerGroup"])
        for one in chart(values)
        if one["kind"] == "ScaledObject"
        for trigger in one["spec"]["triggers"][:1]
    }
    assert triggers == {
        (stage.reads.name, topology.group(stage.keeper))
        for stage in topology.stages
        if stage.per_node and stage.kind != INTAKE
    }


def test_a_single_fused_node_is_not_scaled(helm):
    with pytest.raises(ValueError, match="needs nodes: 2 or more"):
        render(
            helm,
            *("--set", "autoscaling.kind=keda,environment.DOVETAIL_LAYOUT=fused"),
            *("--set-string", "environment.DOVETAIL_NODES=1"),
        )


def test_a_layout_that_there_is_not_is_refused(helm):
    with pytest.raises(ValueError, match="no layout fuse: write split or fused"):
        render(helm, "--set", "environment.DOVETAIL_LAYOUT=fuse")


@pytest.mark.parametrize(
    ("values", "sharing"),
    [
        ("default", {"frequency"}),
        ("spark", {"frequency"}),
        ("no spark", set()),
        ("hpa", {"snapshot", "frequency", "backfill"}),
        # Of three tables the first alone is read from snapshots.
        ("chain", {"frequency", "disk-phase"}),
        ("chain on spark", {"frequency", "enrich"}),
        ("chain, fused", {"frequency", "node"}),
    ],
)
def test_who_has_the_shared_claim(chart, values, sharing):
    objects = chart(values)
    found = {
        one["metadata"]["name"].partition("-")[2]
        for one in objects
        if "claimName" in json.dumps(one)
    }
    assert found == sharing
    claims = [one for one in objects if one["kind"] == "PersistentVolumeClaim"]
    assert bool(claims) is (bool(sharing) and values != "hpa"), "that names a claim of its own"


@pytest.mark.parametrize(
    "wrong",
    [
        ("autoscaling.kind=maybe", "autoscaling"),
        ("memory.base=lots", "base"),
        ("ingest.cpus=2", "cpus"),
        ("drain.stepSeconds=5", "stepSeconds"),
        ("kafka.settings.KAFKA_SASL_PASSWORD=x", "KAFKA_SASL_PASSWORD"),
        ("kafka.settings.KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET=x", "CLIENT_SECRET"),
        ("environment.DATABASE_URL=x", "DATABASE_URL"),
        ("environment.DOVETAIL_ADMIN_TOKEN=x", "ADMIN_TOKEN"),
        ("spark.schedules.frequency=now", "frequency"),
        ("postgres.secret=", "secret"),
        ("identity.kind=own", "postgres.address"),
        ("postgres.query=password=x", "query"),
        ("ingress.controlHost=shop.example.com", "tlsSecret"),
    ],
)
def test_a_wrong_value_is_refused_and_named(helm, wrong):
    given, named = wrong
    with pytest.raises(ValueError, match=named):
        render(helm, "--set", given)


def test_a_pipeline_that_is_none_is_refused(helm, tmp_path):
    (tmp_path / "p.yaml").write_text("source: {}")
    with pytest.raises(ValueError, match="has no name"):
        render(helm, "--set-file", f"pipeline={tmp_path / 'p.yaml'}")


@pytest.mark.parametrize("name", SETS)
def test_what_make_test_compares_with_is_what_helm_renders(helm, name):
    assert (FOLDER / f"{name}.yaml").read_text() == rendered(name), "run: make chart"

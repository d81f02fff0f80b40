"""docker-compose.yml, the chart and the image agree with the topology, and with each other.

The chart is looked at as Helm rendered it (tests/deploy/rendered); `make test-deploy` renders it
anew.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib

import jsonschema_rs
import pytest
import yaml

from deploy.image.start import SERVICES
from deploy.local.home import CHECKOUT
from deploy.prometheus.targets import ADDRESS, host_of, targets_of, written
from dovetail import roles, settings
from dovetail.permissions import users
from dovetail.pipeline.load import load_pipeline
from dovetail.service import declared
from dovetail.topology import (
    CACHE_PHASE,
    CONTROL,
    DISK_PHASE,
    ENRICH,
    INGEST,
    INTAKE,
    MAPPER,
    NODE,
    Topology,
)
from services.spark.jobs import JOBS
from tests.deploy.render import CHART, SETS, digest, recorded
from tests.unit import deployment_kit as kit

PIPELINE = load_pipeline(CHECKOUT / "pipeline.yaml", {})
TOPOLOGY = Topology(PIPELINE)
FUSED = load_pipeline(CHECKOUT / "pipeline.yaml", {"DOVETAIL_LAYOUT": "fused"})
COMPOSE = yaml.safe_load((CHECKOUT / "docker-compose.yml").read_text())
RENDERED, OBJECTS = recorded()
HARDENED = recorded("hardened")[1]
FUSED_OBJECTS = recorded("fused")[1]
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
PROMETHEUS = CHECKOUT / "deploy/prometheus"


def of_kind(objects, kind):
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def container(one):
    return one["spec"]["template"]["spec"]["containers"][0]


def unscaled(objects):
    """Under autoscaling a StatefulSet says no number."""
    return [
        {**one, "spec": {**one["spec"], "replicas": PIPELINE.nodes}}
        if one["kind"] == "StatefulSet"
        else one
        for one in objects
    ]


def test_the_chart_was_rendered_since_it_was_changed():
    assert {digest()} == {RENDERED, *(recorded(name)[0] for name in SETS)}, "run: make chart"


class TestProcesses:
    EXPECTED = kit.of_topology(PIPELINE)

    def test_compose_has_those_of_the_topology(self):
        assert kit.of_compose(COMPOSE, SERVICES) == self.EXPECTED

    def test_compose_has_a_profile_with_those_of_the_fused_layout(self):
        fused = kit.of_compose(COMPOSE, SERVICES, "fused")
        assert fused == kit.of_topology(FUSED)
        assert list(fused) == ["control", "node-0", "node-1"]

    def test_senders_find_ingest_and_the_node_that_does_its_work_at_one_port(self):
        services = COMPOSE["services"]
        assert services["node-0"]["ports"] == services["ingest"]["ports"]
        assert "ports" not in services["node-1"]

    def test_no_process_of_one_layout_waits_for_one_of_the_other(self):
        split = kit.of_compose(COMPOSE, SERVICES).keys() - {CONTROL}
        for name in ("node-0", "node-1", "generate"):
            assert not split & COMPOSE["services"][name]["depends_on"].keys()

    def test_the_chart_has_those_of_the_fused_layout(self):
        assert kit.of_chart(unscaled(FUSED_OBJECTS), PIPELINE.name) == kit.of_topology(FUSED)

    def test_they_stand_in_the_order_in_which_the_data_flows(self):
        assert [name for name in COMPOSE["services"] if name in self.EXPECTED] == [*self.EXPECTED]

    def test_the_chart_has_those_of_the_topology(self):
        assert kit.of_chart(OBJECTS, PIPELINE.name) == self.EXPECTED

    @pytest.mark.parametrize(
        "mutate",
        [
            lambda services: services.pop("disk-phase-1"),
            lambda services: services["mapper"].update(command=["ingest"]),
            lambda services: services["cache-phase-1"]["environment"].update(DOVETAIL_NODE="0"),
            lambda services: services["cache-phase-0"].update(mem_limit="500m"),
            lambda services: services["control"].update(ports=["127.0.0.1:18080:8081"]),
            lambda services: services["ingest"]["healthcheck"].update(test=["x", "/health"]),
        ],
    )
    def test_a_change_of_compose_alone_is_noticed(self, mutate):
        changed = copy.deepcopy(COMPOSE)
        mutate(changed["services"])
        assert kit.of_compose(changed, SERVICES) != self.EXPECTED

    @pytest.mark.parametrize(
        "mutate",
        [
            lambda one: one["spec"].update(replicas=3),
            lambda one: container(one)["ports"][0].update(containerPort=8081),
            lambda one: container(one)["resources"]["limits"].update(memory="1"),
            lambda one: container(one).update(args=["disc_phase"]),
            lambda one: container(one)["readinessProbe"]["httpGet"].update(path="/health"),
        ],
    )
    def test_a_change_of_the_chart_alone_is_noticed(self, mutate):
        changed = copy.deepcopy(OBJECTS)
        mutate(of_kind(changed, "StatefulSet")["sales-disk-phase"])
        assert kit.of_chart(changed, PIPELINE.name) != self.EXPECTED

    def test_a_change_of_the_pipeline_alone_is_noticed(self):
        for change in ({"nodes": 3}, {"memory": 64 << 20}):
            other = PIPELINE.model_copy(update=change)
            assert kit.of_compose(COMPOSE, SERVICES) != kit.of_topology(other)
            assert kit.of_chart(OBJECTS, PIPELINE.name) != kit.of_topology(other)


class TestSettings:
    def test_both_tell_each_service_the_same(self):
        """But for what only one of them has: where secrets are, and how many requests are taken."""
        for name, one in kit.of_chart(unscaled(HARDENED), PIPELINE.name).items():
            chart = {variable["name"] for variable in _container_of(HARDENED, name, one)["env"]}
            compose = set(COMPOSE["services"][name]["environment"])
            assert chart - compose <= {
                "DOVETAIL_REQUESTS",
                *(f"DOVETAIL_TLS_{name}" for name in ("CERTIFICATE", "KEY", "AUTHORITY")),
                *(f"KAFKA_{option}" for option in ("SECURITY_PROTOCOL", "SSL_CA_LOCATION")),
                *(f"KAFKA_SASL_{option}" for option in ("MECHANISM", "USERNAME", "PASSWORD_FILE")),
            }, name
            assert compose <= chart, name

    def test_the_code_reads_every_one_of_them(self):
        sources = [
            file.read_text()
            for folder in ("dovetail", "services", "deploy")
            for file in (CHECKOUT / folder).rglob("*.py")
        ]
        code = "\n".join(sources)
        ours = [one for one in COMPOSE["services"].values() if "dovetail" in one["image"]]
        told = {name for one in ours for name in one.get("environment", ())}
        told |= {
            variable["name"] for one in kit.workloads(OBJECTS) for variable in container(one)["env"]
        }
        told |= set(re.findall(r"^ +(DOVETAIL_\w+)=", _recipe(), re.MULTILINE))
        # Settings put these together: the database's, or control's own, here or in a file.
        parts = re.compile(r"(CONTROL_)?DATABASE_(URL|PASSWORD)(_FILE)?")
        assert [
            name for name in told if f'"{name}"' not in code and not parts.fullmatch(name)
        ] == []

    def test_images_and_versions_are_the_same(self):
        version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        assert chart["version"] == chart["appVersion"] == version
        images = {container(one)["image"] for one in kit.workloads(OBJECTS)}
        assert images == {f"dovetail:{version}"}
        assert _default(COMPOSE["services"]["ingest"]["image"]) == f"dovetail:{version}"
        assert _default(COMPOSE["services"]["frequency"]["image"]) == f"dovetail-spark:{version}"
        assert VALUES["spark"]["image"]["repository"] == "dovetail-spark"
        assert f"ARG VERSION={version}\n" in _recipe()

    def test_the_same_folders_are_mounted(self):
        mounted = {
            volume.split(":")[-2 if volume.endswith(":ro") else -1]
            for volume in COMPOSE["services"]["ingest"]["volumes"]
        }
        for one in kit.workloads(HARDENED):
            mounts = {mount["mountPath"] for mount in container(one)["volumeMounts"]}
            tls = {path for path in mounts if path.startswith("/etc/dovetail/tls")}
            secrets = {path for path in mounts if path.startswith("/run/secrets/dovetail/")}
            assert mounts - tls - secrets - {"/tmp"} == mounted - {"/etc/dovetail/tls"}
        assert set(json.loads(re.search(r"^VOLUME (.+)$", _recipe(), re.MULTILINE)[1])) <= mounted

    def test_no_service_waits_for_the_claim_that_jobs_write_to(self):
        """It may never be had; and without snapshots no service reads what is on it."""
        for objects in (OBJECTS, HARDENED):
            assert "claimName" not in json.dumps(kit.workloads(objects))
            assert "claimName" in json.dumps(objects)

    def test_a_container_has_as_long_to_end_in_both(self):
        pods = [one["spec"]["template"]["spec"] for one in kit.workloads(OBJECTS)]
        (seconds,) = {pod["terminationGracePeriodSeconds"] for pod in pods}
        assert COMPOSE["services"]["mapper"]["stop_grace_period"] == f"{seconds}s"
        for pod in pods:
            command = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
            assert int(command[1]) + 30 < seconds, "a step may take half a minute"

    def test_memory_is_computed_from_the_same_figures(self):
        from deploy import resources

        mib = {name: int(size.removesuffix("Mi")) << 20 for name, size in VALUES["memory"].items()}
        assert mib == {
            "base": resources.BASE,
            "beside": resources.BESIDE,
            "stage": resources.STAGE,
        }


WORKLOADS = [*kit.workloads(OBJECTS), *kit.workloads(FUSED_OBJECTS)]


class TestContainers:
    """What `make test-image` tries is what Compose's file says; the chart says the same."""

    @pytest.mark.parametrize("one", WORKLOADS, ids=lambda one: one["metadata"]["name"])
    def test_the_chart_starts_them_as_compose_does(self, one):
        name = one["metadata"]["name"].removeprefix("sales-")
        own = COMPOSE["services"].get(name) or COMPOSE["services"][f"{name}-0"]
        assert container(one)["args"] == own["command"]
        assert not {"command", "workingDir"} & container(one).keys()
        assert not {"entrypoint", "working_dir", "user"} & own.keys()

    @pytest.mark.parametrize("one", WORKLOADS, ids=lambda one: one["metadata"]["name"])
    def test_the_chart_lets_them_do_as_little(self, one):
        pod = one["spec"]["template"]["spec"]["securityContext"]
        assert f"USER {pod['runAsUser']}:{pod['runAsGroup']}\n" in _recipe()
        assert container(one)["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }

    @pytest.mark.parametrize("one", WORKLOADS, ids=lambda one: one["metadata"]["name"])
    def test_the_names_of_services_around_them_are_no_settings(self, one):
        assert one["spec"]["template"]["spec"]["enableServiceLinks"] is False

    def test_jobs_too(self):
        (job,) = of_kind(OBJECTS, "CronJob").values()
        pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        assert pod["enableServiceLinks"] is False
        assert pod["containers"][0]["args"] == COMPOSE["services"]["frequency"]["command"]


class TestIdentities:
    """Each service is a user and a role of its own, by a secret of its own (docs/security.md)."""

    USERS = users(TOPOLOGY)

    @pytest.mark.parametrize(
        ("objects", "topology", "name"),
        [
            (objects, topology, host_of(process))
            for objects, topology in ((HARDENED, TOPOLOGY), (FUSED_OBJECTS, Topology(FUSED)))
            for process in topology.processes
        ],
        ids=lambda one: one if isinstance(one, str) else "",
    )
    def test_it_is_who_the_permissions_are_for(self, objects, topology, name):
        one = kit.of_chart(unscaled(objects), PIPELINE.name)[name]
        told = _environment(_container_of(objects, name, one))
        assert told["KAFKA_SASL_USERNAME"] == users(topology)[one.service]
        for variable in ("DATABASE_URL", "CONTROL_DATABASE_URL"):
            chart, compose = (
                each[variable].partition("//")[2].partition("@")[0]
                for each in (told, COMPOSE["services"][name]["environment"])
            )
            assert chart == compose
            assert chart in roles.ROLES
        assert (roles.CONTROL in told["CONTROL_DATABASE_URL"]) is (one.service == CONTROL)

    @pytest.mark.parametrize(
        "one",
        [*kit.workloads(HARDENED), *kit.workloads(FUSED_OBJECTS)],
        ids=lambda one: one["metadata"]["name"],
    )
    def test_its_passwords_are_files_of_a_secret_that_no_other_has(self, one):
        told = _environment(container(one))
        volumes = {v["name"]: v for v in one["spec"]["template"]["spec"]["volumes"]}
        mounts = {m["mountPath"]: m for m in container(one)["volumeMounts"]}
        own = volumes[mounts["/run/secrets/dovetail/own"]["name"]]["secret"]["secretName"]
        assert own == one["metadata"]["name"]
        files = [value for name, value in told.items() if name.endswith("_PASSWORD_FILE")]
        assert len(files) == 3
        assert all(file.startswith("/run/secrets/dovetail/own/") for file in files)

    @pytest.mark.parametrize("job", ["snapshot", "frequency", "backfill"])
    def test_a_job_is_itself_and_may_write_its_runs_down(self, job):
        application = of_kind(HARDENED, "ScheduledSparkApplication")[f"sales-{job}"]
        for member in ("driver", "executor"):
            told = _environment(application["spec"]["template"][member])
            assert told.get("KAFKA_SASL_USERNAME") == self.USERS.get(job)
            assert told["CONTROL_DATABASE_URL"].startswith(f"postgresql://{roles.CONTROL}@")

    def test_the_handbook_makes_a_secret_for_each(self):
        page = (CHECKOUT / "docs/deployment.md").read_text()
        made = re.search(r"^for service in (.+); do$", page, re.MULTILINE)[1].split()
        processes = (*TOPOLOGY.processes, *Topology(FUSED).processes)
        kinds = {process.kind.replace("_", "-") for process in processes}
        assert set(made) == kinds | set(JOBS)

    @pytest.mark.parametrize("objects", [OBJECTS, HARDENED], ids=["shared", "own"])
    def test_no_secret_is_in_an_environment(self, objects):
        text = json.dumps(objects)
        assert "secretKeyRef" not in text
        assert "secretRef" not in text
        assert '"secretName"' in text


class TestTls:
    def test_probes_and_scrapes_ask_by_tls_where_services_have_a_certificate(self):
        for objects, scheme in ((OBJECTS, "HTTP"), (HARDENED, "HTTPS")):
            for one in kit.workloads(objects):
                probes = [probe for name, probe in container(one).items() if name.endswith("Probe")]
                assert {probe["httpGet"]["scheme"] for probe in probes} == {scheme}
        (monitor,) = of_kind(HARDENED, "ServiceMonitor").values()
        assert monitor["spec"]["endpoints"][0]["scheme"] == "https"

    def test_from_outside_there_is_a_door_to_control_and_one_to_ingest(self):
        assert of_kind(OBJECTS, "Ingress") == {}
        doors = of_kind(HARDENED, "Ingress")
        assert set(doors) == {"sales-control", "sales-ingest"}
        for name, one in doors.items():
            (rule,) = one["spec"]["rules"]
            assert rule["http"]["paths"][0]["backend"]["service"]["name"] == name
            assert one["spec"]["tls"][0]["hosts"] == [rule["host"]]

    def test_the_door_of_ingest_leads_to_the_first_fused_node(self):
        (rule,) = of_kind(FUSED_OBJECTS, "Ingress")["sales-ingest"]["spec"]["rules"]
        behind = rule["http"]["paths"][0]["backend"]["service"]
        service = of_kind(FUSED_OBJECTS, "Service")[behind["name"]]
        assert behind["port"]["number"] == service["spec"]["ports"][0]["port"]
        pods = of_kind(FUSED_OBJECTS, "StatefulSet")["sales-node"]["spec"]["template"]["metadata"]
        wanted = {**service["spec"]["selector"]}
        assert wanted.pop("apps.kubernetes.io/pod-index") == "0"
        assert wanted.items() <= pods["labels"].items()

    def test_no_node_is_scraped_twice_for_it(self):
        (monitor,) = of_kind(FUSED_OBJECTS, "ServiceMonitor").values()
        ports = {
            name: one["spec"]["ports"][0]["name"]
            for name, one in of_kind(FUSED_OBJECTS, "Service").items()
        }
        scraped = {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]}
        assert {name for name, port in ports.items() if port in scraped} == {
            "sales-control",
            "sales-node",
        }


class TestTopics:
    @pytest.mark.parametrize(
        ("objects", "topology"), [(HARDENED, TOPOLOGY), (FUSED_OBJECTS, Topology(FUSED))]
    )
    def test_nodes_are_scaled_by_the_topics_and_groups_that_they_read(self, objects, topology):
        scaled = {}
        for name, one in of_kind(objects, "ScaledObject").items():
            trigger = one["spec"]["triggers"][0]["metadata"]
            scaled[name] = (trigger["topic"], trigger["consumerGroup"])
            assert one["spec"]["minReplicaCount"] == PIPELINE.nodes
            assert one["spec"]["maxReplicaCount"] == PIPELINE.slots
        assert scaled == {
            f"sales-{stage.kind.replace('_', '-')}": (
                stage.reads.name,
                topology.group(stage.keeper),
            )
            for stage in topology.stages
            if stage.per_node and stage.kind != INTAKE
        }

    def test_the_load_is_sent_to_the_source(self):
        command = COMPOSE["services"]["generate"]["command"]
        assert command[command.index("--topic") + 1] == TOPOLOGY.source.name


class TestMetrics:
    def test_compose_is_scraped_by_the_targets_of_the_topology(self):
        assert (PROMETHEUS / "targets/sales.yml").read_text() == written(PIPELINE)
        hosts = {host_of(process) for process in TOPOLOGY.processes}
        assert hosts <= COMPOSE["services"].keys()
        assert ADDRESS.endswith(f":{kit.PORT}")

    @pytest.mark.parametrize(
        ("objects", "pipeline"), [(OBJECTS, PIPELINE), (unscaled(FUSED_OBJECTS), FUSED)]
    )
    def test_the_charts_targets_have_the_labels_of_the_topologys(self, objects, pipeline):
        (monitor,) = of_kind(HARDENED, "ServiceMonitor").values()
        expected = {
            host_of(process): {"job": "dovetail", **target.labels}
            for process, target in zip(
                Topology(pipeline).processes, targets_of(pipeline, host_of), strict=True
            )
        }
        found = {}
        for one in kit.workloads(objects):
            name = one["metadata"]["name"].removeprefix("sales-")
            pod = one["spec"]["template"]
            for node in range(one["spec"]["replicas"]) if one["kind"] == "StatefulSet" else [None]:
                host = name if node is None else f"{name}-{node}"
                found[host] = kit.labels_of(pod, monitor, node)
        assert found == expected

    def test_the_jobs_name_and_the_interval_are_prometheus(self):
        own = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
        assert own["scrape_configs"][0]["job_name"] == "dovetail"
        assert own["global"]["scrape_interval"] == VALUES["monitoring"]["interval"]

    def test_the_charts_rules_are_those_of_prometheus(self):
        (rules,) = of_kind(HARDENED, "PrometheusRule").values()
        files = [PROMETHEUS / f"{name}.yml" for name in ("recording", "alerts")]
        groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
        assert rules["spec"]["groups"] == groups

    def test_it_scales_by_metrics_that_there_are(self):
        recording = yaml.safe_load((PROMETHEUS / "recording.yml").read_text())["groups"]
        known = {rule["record"] for group in recording for rule in group["rules"]}
        known |= {one.name for one in declared.FIGURES.values()}
        text = (CHART / "templates/autoscaling.yaml").read_text()
        used = set(re.findall(r"[\w:]*\bdovetail_\w+(?::\w+)?", text))
        used = {name for name in used if "dovetail_" in name}
        assert used
        assert used <= known

    def test_dashboards_are_grafanas_own(self):
        assert (CHART / "files/dashboards").resolve() == CHECKOUT / "deploy/grafana/dashboards"
        volumes = COMPOSE["services"]["grafana"]["volumes"]
        assert "./deploy/grafana/dashboards:/var/lib/grafana/dashboards:ro" in volumes


class TestEdges:
    """Who speaks to whom: all to Kafka, control to the stages, nobody else to anybody."""

    POLICIES = of_kind(FUSED_OBJECTS, "NetworkPolicy") | of_kind(HARDENED, "NetworkPolicy")

    def policy(self, kind):
        return self.POLICIES[f"sales-{kind.replace('_', '-')}"]["spec"]

    @pytest.mark.parametrize(
        ("objects", "topology"), [(HARDENED, TOPOLOGY), (FUSED_OBJECTS, Topology(FUSED))]
    )
    def test_there_is_one_for_each_service_and_one_that_closes_the_rest(self, objects, topology):
        kinds = {process.kind.replace("_", "-") for process in topology.processes}
        found = of_kind(objects, "NetworkPolicy")
        assert {name.removeprefix("sales-") for name in found} == {
            *kinds,
            "spark",
            "nothing-else",
        }
        closed = self.POLICIES["sales-nothing-else"]["spec"]
        assert closed.keys() == {"podSelector", "policyTypes"}

    @pytest.mark.parametrize("kind", [INGEST, MAPPER, CACHE_PHASE, DISK_PHASE, NODE])
    def test_of_ours_only_control_reaches_a_stage(self, kind):
        ours = [
            peer["podSelector"]["matchLabels"].get("app.kubernetes.io/component")
            for rule in self.policy(kind)["ingress"]
            for peer in rule["from"]
            if "app.kubernetes.io/name" in peer.get("podSelector", {}).get("matchLabels", {})
        ]
        assert ours == [CONTROL]

    @pytest.mark.parametrize("kind", [CONTROL, INGEST, MAPPER, CACHE_PHASE, DISK_PHASE, NODE])
    def test_it_goes_out_to_what_it_needs_and_no_further(self, kind):
        ports = {port["port"] for rule in self.policy(kind)["egress"] for port in rule["ports"]}
        needed = {53, 9093}
        if kind != MAPPER:  # which asks the database only where it may shed
            needed.add(5432)
        if kind == CONTROL:
            needed.add(kit.PORT)
        assert ports == needed

    @pytest.mark.parametrize("kind", [CONTROL, INGEST, MAPPER, CACHE_PHASE, DISK_PHASE, NODE])
    def test_what_comes_in_comes_to_the_one_port(self, kind):
        rules = self.policy(kind)["ingress"]
        assert {port["port"] for rule in rules for port in rule["ports"]} == {kit.PORT}

    def test_who_may_send_to_ingest_may_send_to_the_node_that_does_its_work(self):
        senders = [
            rule
            for rule in self.policy(INGEST)["ingress"]
            if any("sends" in json.dumps(peer) for peer in rule["from"])
        ]
        assert senders
        assert [rule for rule in senders if rule in self.policy(NODE)["ingress"]] == senders


class TestSpark:
    def test_both_have_the_same_jobs(self):
        jobs = {job for job in JOBS if job != ENRICH}
        composed = {
            name for name, one in COMPOSE["services"].items() if one.get("profiles") == ["jobs"]
        }
        assert composed == jobs == VALUES["spark"]["schedules"].keys()
        operated = of_kind(HARDENED, "ScheduledSparkApplication")
        assert {name.removeprefix("sales-") for name in operated} == jobs
        for name, one in operated.items():
            assert [name.removeprefix("sales-")] == one["spec"]["template"]["arguments"]
        assert [*of_kind(OBJECTS, "CronJob")] == ["sales-frequency"]

    def test_versions_are_the_package_s(self):
        pinned = (CHECKOUT / "constraints.txt").read_text()
        assert f"pyspark=={VALUES['spark']['sparkVersion']}\n" in pinned


class TestValues:
    SCHEMA = json.loads((CHART / "values.schema.json").read_text())

    @pytest.mark.parametrize("file", [CHART / "values.yaml", *(CHART / "ci").glob("*.yaml")])
    def test_they_keep_to_their_schema(self, file):
        validator = jsonschema_rs.validator_for(self.SCHEMA)
        found = validator.iter_errors(yaml.safe_load(file.read_text()))
        assert [error.message for error in found] == []

    @pytest.mark.parametrize("prefix", settings._CLIENT_PREFIXES)
    def test_every_setting_of_the_kafka_client_that_is_read_may_be_given(self, prefix):
        assert self.takes({"kafka": {"settings": {f"KAFKA_{prefix}X": "1"}}})
        assert self.takes({"kafka": {"settings": {f"KAFKA_{prefix}PASSWORD_FILE": "/run/x"}}})

    @pytest.mark.parametrize(
        "name",
        [
            *("KAFKA_SASL_PASSWORD", "KAFKA_SSL_KEY_PASSWORD", "KAFKA_SSL_KEY_PEM"),
            "KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET",
            "KAFKA_SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_PASSPHRASE",
            *("DATABASE_PASSWORD", "DOVETAIL_ADMIN_TOKEN", "DOVETAIL_TOKEN"),
        ],
    )
    def test_no_secret_is_taken_as_a_value(self, name):
        assert not self.takes({"environment": {name: "x"}})
        assert not self.takes({"kafka": {"settings": {name: "x"}}})
        assert self.takes({"environment": {f"{name}_FILE": "/run/secrets/x"}})

    def takes(self, values):
        return jsonschema_rs.validator_for(self.SCHEMA).is_valid(values)

    def test_the_schema_knows_every_value_and_no_other(self):
        assert self.SCHEMA["properties"].keys() - {"global"} == VALUES.keys()
        assert self.SCHEMA["additionalProperties"] is False


def _container_of(objects, name, one):
    of_set = name if one.node is None else name.rpartition("-")[0]
    found = {each["metadata"]["name"]: each for each in kit.workloads(objects)}
    return container(found[f"{PIPELINE.name}-{of_set}"])


def _environment(container):
    return {one["name"]: one.get("value") for one in container["env"]}


def _recipe():
    return (CHECKOUT / "deploy/image/Dockerfile").read_text()


def _default(text):
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)

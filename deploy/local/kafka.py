"""One Apache Kafka broker (KRaft: broker and controller in one process) on the loopback."""

from __future__ import annotations

import base64
import os
import re
import shutil
import socket
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.local.files import last_lines, write_atomically
from deploy.local.processes import Managed, run_tool
from deploy.local.security import SUPER_USER, Security
from dovetail.errors import ConfigError, StackError, Unavailable
from dovetail.settings import kafka_options
from dovetail.stream.refusals import client_of

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping

    from deploy.local.home import Home

HERE = Path(__file__).parent
MIB = 2**20

SETTINGS: dict[str, object] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    # Relative to the folder it runs in: a checkout's path may hold any character.
    "log.dirs": "kafka",
    "auto.create.topics.enable": "false",
    "message.max.bytes": 16 * MIB,
    "log.segment.bytes": 128 * MIB,
    # Bounds a forgotten stack's disk: bytes are for one partition.
    "log.retention.bytes": 1024 * MIB,
    "log.retention.hours": 168,
    "log.cleaner.dedupe.buffer.size": 32 * MIB,
    # One node is all there is.
    "default.replication.factor": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 4,
    # What a pipeline has read is forgotten a week after its services were stopped, otherwise, and
    # would be answered once more.
    "offsets.retention.minutes": 365 * 24 * 60,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 4,
    # A killed service is to be replaced in seconds, not in a minute.
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 300,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    # Its usual eleven threads get in one another's way on the few cores of such a machine.
    "num.network.threads": 1,
    # As the system sizes them: 100 KiB, as usual, are filled and waited for many times a request.
    "socket.send.buffer.bytes": -1,
    "socket.receive.buffer.bytes": -1,
    "num.io.threads": 2,
    # A start and a clean stop each wait for a heartbeat or two.
    "broker.heartbeat.interval.ms": 500,
}


class Broker:
    def __init__(
        self,
        home: Home,
        *,
        java: Path,
        jars: Path,
        port: int,
        controller_port: int,
        environ: Mapping[str, str] = os.environ,
        security: Security | None = None,
    ) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        controller = f"127.0.0.1:{controller_port}"
        self._security = security
        self._home = home
        self._port = port
        self._java = java
        self._classpath = f"{jars}/*"
        self._data = home.data / "kafka"
        self._properties = home.run / "kafka.properties"
        self._settings = {
            **SETTINGS,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "controller.quorum.voters": f"1@{controller}",
            **(security.broker_settings(self.bootstrap, controller) if security else {}),
        }
        # A JVM in the C locale cannot open a path with other letters than ASCII's.
        self._environ = {**environ, "LC_ALL": "C.UTF-8"}
        self._process = Managed(
            home,
            "kafka",
            [*self._jvm(_heap(environ)), "kafka.Kafka", self._properties],
            env=self._environ,
            cwd=home.data,
        )

    @property
    def client(self) -> dict[str, str]:
        """What a client of the stack's own needs beside the address."""
        if self._security is None:
            return {}
        return kafka_options(self._security.kafka_environment(SUPER_USER))

    def prepare(self) -> None:
        """Write the settings and format the storage, if that is not done."""
        _write_properties(self._properties, self._settings)
        if _formatted(self._data):
            return
        _remove_half_formatted(self._data)
        self._format()

    def start(self) -> None:
        self._process.start()

    def wait_until_healthy(self, timeout_s: float = 300.0) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._process.check()
            # A client is made only for an open port: it would log each refused connection.
            address = {"bootstrap.servers": self.bootstrap}
            if _accepts(self._port) and not _failure({**self.client, **address}, 2.0):
                return
            time.sleep(0.05)
        raise StackError(
            f"Kafka did not answer at {self.bootstrap} within {timeout_s:.0f} s. "
            f"The end of {self._process.log}:\n{last_lines(self._process.log)}"
        )

    def send(self, number: signal.Signals) -> None:
        """Send the broker a signal, without waiting; `prepare` and `start` bring it back."""
        self._process.send(number)

    def check(self) -> None:
        """Raise if the broker has ended by itself."""
        self._process.check()

    def stop(self, grace_s: float = 30.0) -> None:
        self._process.stop(grace_s)

    def _format(self) -> None:
        """Format beside the final place and rename: a crash leaves nothing half-formatted there."""
        partial = self._data.with_name("kafka.partial")
        shutil.rmtree(partial, ignore_errors=True)
        properties = self._home.run / "kafka-format.properties"
        _write_properties(properties, {**self._settings, "log.dirs": partial.name})
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}"]
        if self._security is not None:
            tool += self._security.format_words()
        run_tool(
            "formatting Kafka's storage",
            [*self._jvm("128m"), *tool, "--config", properties],
            self._home.logs / "kafka-format.log",
            env=self._environ,
            cwd=self._home.data,
        )
        partial.rename(self._data)

    def _jvm(self, heap: str) -> list[str | Path]:
        return [
            self._java,
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            # The optimising compiler takes minutes to earn back what it costs, on cores that the
            # services need as well.
            "-XX:TieredStopAtLevel=1",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={(HERE / 'log4j2.properties').as_uri()}",
            "-cp",
            self._classpath,
        ]


def check_kafka(bootstrap: str, config: Mapping[str, Any] | None = None) -> None:
    """Raise unless a broker answers; `config` adds client settings such as TLS and SASL."""
    failure = _failure({**(config or {}), "bootstrap.servers": bootstrap}, 10.0)
    if failure:
        raise Unavailable(
            f"no Kafka answers at {bootstrap} (KAFKA_BOOTSTRAP): {failure}\n"
            "Correct the address or its security settings, or unset it to have a local broker "
            "started"
        )


def _failure(config: Mapping[str, Any], timeout_s: float) -> str | None:
    """Return why no broker answers, in the client's words; None if one does."""
    reasons: list[str] = []
    quiet: dict[str, Any] = {
        "log_level": 0,
        "error_cb": lambda error: reasons.append(error.str()),
    }
    client = client_of(AdminClient, quiet | dict(config))
    try:
        client.list_topics(timeout=timeout_s)
    except KafkaException as error:
        # The call itself knows only of a time-out: the reason comes by the callback.
        client.poll(0)
        return reasons[0] if reasons else str(error)
    return None


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _heap(environ: Mapping[str, str]) -> str:
    heap = environ.get("KAFKA_HEAP", "512m")
    if re.fullmatch(r"\d+[kmgKMG]", heap):
        return heap
    raise ConfigError("KAFKA_HEAP is not a size: give a number and a unit, such as 512m")


def _formatted(data: Path) -> bool:
    meta = data / "meta.properties"
    return meta.is_file() and "cluster.id=" in meta.read_text(errors="replace")


def _remove_half_formatted(data: Path) -> None:
    """Remove an unformatted folder, but never one with messages in it."""
    topics = [path.parent.name for path in data.glob("*/*.log")]
    if any(not name.startswith("__cluster_metadata") for name in topics):
        raise StackError(
            f"{data} holds topics but is not a formatted Kafka folder (meta.properties is missing "
            "or damaged): restore that file, or delete the folder to start empty"
        )
    shutil.rmtree(data, ignore_errors=True)


def _write_properties(path: Path, settings: Mapping[str, object]) -> None:
    # For the owner alone: a secured broker's settings hold a password.
    lines = "".join(f"{name}={value}\n" for name, value in settings.items())
    write_atomically(path, lines, mode=0o600)

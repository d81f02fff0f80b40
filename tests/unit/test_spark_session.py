"""What Spark is told when it is started, by where it runs and what for."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from services.spark import session
from services.spark.settings import SparkSettings

SERIAL = "-XX:+UseSerialGC"


@pytest.fixture
def launched(monkeypatch, tmp_path):
    monkeypatch.setattr(session, "connector_jars", lambda _: [Path("kafka.jar")])

    def launch(master, *, streams):
        settings = SparkSettings("broker", "postgresql://", tmp_path, master=master)
        return session._launch_options(settings, streams=streams)

    return launch


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://host:7077", False),
        ("k8s://https://host", False),
    ],
)
def test_local_is_what_is_one_process(master, local):
    assert session.is_local(master) is local


def test_a_stream_in_one_process_keeps_its_heap_small(launched):
    assert SERIAL in launched("local[2]", streams=True)["spark.driver.extraJavaOptions"]
    assert SERIAL not in launched("local[2]", streams=False)["spark.driver.extraJavaOptions"]
    on_cluster = launched("spark://host:7077", streams=True)
    assert SERIAL not in on_cluster["spark.driver.extraJavaOptions"]
    assert SERIAL not in on_cluster["spark.executor.extraJavaOptions"]


def test_a_checkout_in_a_folder_with_a_space_splits_no_option(launched, monkeypatch):
    monkeypatch.setattr(session, "LOG4J", Path("/home/a user/it's/log4j2.properties"))
    words = launched("local[2]", streams=False)["spark.driver.extraJavaOptions"].split(" ")
    assert words == ["-Dlog4j2.configurationFile=file:///home/a%20user/it%27s/log4j2.properties"]


@pytest.mark.parametrize(("master", "packed"), [("local[2]", "false"), ("spark://host:1", "true")])
def test_what_is_shuffled_is_packed_where_it_crosses_a_network(launched, master, packed):
    assert launched(master, streams=False)["spark.shuffle.compress"] == packed


def test_a_folder_that_cannot_be_made_is_named_with_what_to_set(tmp_path):
    (tmp_path / "taken").touch()
    settings = SparkSettings.from_environment(
        {
            "KAFKA_BOOTSTRAP": "broker",
            "DATABASE_URL": "postgresql://",
            "SPARK_LOCAL_DIRS": f"{tmp_path}/taken/spark,{tmp_path}",
        }
    )
    with pytest.raises(ConfigError, match=r"taken/spark \(Not a directory\); set SPARK_LOCAL_DIRS"):
        session.spark_session(settings, "frequency")

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dovetail.errors import ConfigError, Unavailable
from dovetail.stream.rdkafka import Consumer, KafkaFailure, Producer, Records, kernels
from dovetail.stream.rdkafka.library import Library, Message, find_library, library

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

NOWHERE: dict[str, str | int | bool] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def test_the_library_of_the_wheel_is_the_one_confluent_kafka_runs_on() -> None:
    import confluent_kafka

    assert library().version() == confluent_kafka.libversion()[1]


def test_the_environment_chooses_the_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LIBRDKAFKA", str(tmp_path / "librdkafka.so"))
    assert find_library() == str(tmp_path / "librdkafka.so")


def test_a_missing_library_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.so"):
        Library(str(tmp_path / "absent.so"))


def test_a_library_without_the_calls_is_refused() -> None:
    with pytest.raises(ConfigError, match="rd_kafka_version"):
        Library(find_any_other_library())


def find_any_other_library() -> str:
    import _ctypes

    return _ctypes.__file__


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.setting"):
        Producer({"no.such.setting": 1})


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="acks"):
        Producer({**NOWHERE, "acks": 1, "enable.idempotence": True})


def test_a_consumer_without_a_group_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"group\.id"):
        Consumer(NOWHERE, "sales", print, print)


@pytest.mark.parametrize("bounds", [[0, 5], [3, 1], [-1, 2], [0, 1, 1]])
def test_bounds_outside_the_data_are_refused_before_any_memory_is_read(bounds: list[int]) -> None:
    data = np.zeros(4, np.uint8)
    rows = np.array([0, 4], np.int64)
    with Producer(NOWHERE) as producer, pytest.raises(ValueError, match="bounds"):
        producer.send_many("sales", 0, data, rows, keys=(data, np.array(bounds, np.int64)))


def test_partitions_and_tombstones_must_have_as_many_rows_as_values() -> None:
    data, bounds = np.zeros(4, np.uint8), np.array([0, 1, 2, 3], np.int64)
    with Producer(NOWHERE) as producer:
        with pytest.raises(ValueError, match="2 partitions for 3 rows"):
            producer.send_many("sales", np.zeros(2, np.int32), data, bounds)
        with pytest.raises(ValueError, match="1 tombstones for 3 rows"):
            producer.send_many("sales", 0, data, bounds, tombstones=np.zeros(1, np.bool_))


def test_a_broker_that_is_not_there_is_a_failure_that_may_be_tried_again() -> None:
    with (
        Producer({**NOWHERE, "transactional.id": "t"}) as producer,
        pytest.raises(Unavailable) as caught,
    ):
        producer.init_transactions(0.1)
    failure = caught.value
    assert isinstance(failure, KafkaFailure)
    assert (failure.retriable, failure.fatal, failure.fenced) == (True, False, False)


def test_sending_outside_a_transaction_is_refused() -> None:
    with (
        Producer({**NOWHERE, "transactional.id": "t"}) as producer,
        pytest.raises(KafkaFailure, match="row 0 to sales") as caught,
    ):
        producer.send("sales", b"x")
    assert caught.value.name == "_STATE"


def test_a_failure_tells_its_name_and_whether_it_fences() -> None:
    fenced = KafkaFailure("committing", 90, fatal=True)
    assert (fenced.name, fenced.fenced, fenced.fatal) == ("PRODUCER_FENCED", True, True)
    assert str(fenced).startswith("committing: ")
    assert not KafkaFailure("committing", -185).fenced


def test_a_closed_client_refuses_work_instead_of_touching_freed_memory() -> None:
    producer = Producer(NOWHERE)
    consumer = Consumer({**NOWHERE, "group.id": "g"}, "sales", lambda _: None, lambda _: None)
    for client in (producer, consumer):
        client.close()
        client.close()
    with pytest.raises(ValueError, match="closed"):
        producer.send("sales", b"x")
    with pytest.raises(ValueError, match="closed"):
        consumer.consume(1, 0)
    with pytest.raises(ValueError, match="closed"):
        consumer.positions()


def messages(*fields: Message) -> NDArray[np.int64]:
    return np.array([ctypes.addressof(message) for message in fields], np.int64)


def test_the_kernels_read_the_fields_where_the_structure_has_them() -> None:
    fields = [Message(err=-191, partition=3, offset=1 << 40), Message(partition=-1, offset=7)]
    pointers = messages(*fields)
    partitions, offsets = np.empty(2, np.int32), np.empty(2, np.int64)
    kernels.locate(pointers, partitions, offsets)
    assert partitions.tolist() == [3, -1]
    assert offsets.tolist() == [1 << 40, 7]
    assert kernels.failed(pointers).tolist() == [True, False]


@pytest.mark.parametrize(("max_bytes", "fitting"), [(0, 1), (5, 1), (14, 1), (15, 3), (99, 4)])
def test_a_batch_ends_before_the_value_that_does_not_fit(max_bytes: int, fitting: int) -> None:
    fields = [Message(len=size) for size in (10, 5, 0, 1)]
    bounds = np.empty(5, np.int64)
    assert kernels.measure(messages(*fields), max_bytes, bounds) == fitting
    assert bounds[: fitting + 1].tolist() == [0, 10, 15, 15, 16][: fitting + 1]


def test_a_tombstone_is_not_an_empty_value() -> None:
    records = Records(
        np.zeros(3, np.int32),
        np.arange(3, dtype=np.int64),
        np.zeros(3, np.int64),
        np.frombuffer(b"ab", np.uint8),
        np.array([0, 2, 2, 2], np.int64),
        np.array([False, True, False]),
    )
    assert len(records) == 3
    assert [records.value(row) for row in range(3)] == [b"ab", None, b""]

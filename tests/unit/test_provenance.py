import numpy as np

from dovetail.stream.provenance import origins


def test_an_origin_names_topic_partition_and_offset():
    found = origins("sales", np.array([0, 12, 3], np.int32), np.array([0, 9, 10], np.int64))
    assert list(found) == [b"sales/0/0", b"sales/12/9", b"sales/3/10"]


def test_the_largest_partition_and_offset_fit():
    partitions = np.full(3, 2**31 - 1, np.int32)
    offsets = np.full(3, 2**63 - 1, np.int64)
    expected = b"t/2147483647/9223372036854775807"
    assert list(origins("t", partitions, offsets)) == [expected] * 3


def test_no_records_have_no_origins():
    assert list(origins("sales", np.empty(0, np.int32), np.empty(0, np.int64))) == []

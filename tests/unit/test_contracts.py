"""The promises of proto/README.md."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from dovetail.contracts import (
    batch_pb2,
    control_pb2,
    event_pb2,
    migration_pb2,
    progress_pb2,
    request_pb2,
)

CHECKOUT = Path(__file__).parents[2]
PROTO = CHECKOUT / "proto"
FILES = sorted(PROTO.rglob("*.proto"))
RELEASED = json.loads(Path(__file__).with_name("contracts.json").read_text())
MODULES = (batch_pb2, control_pb2, event_pb2, migration_pb2, progress_pb2, request_pb2)

TYPES = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}


def messages(descriptors):
    """All messages, the nested ones too, but not the entries that stand for a map."""
    for descriptor in descriptors:
        if not descriptor.GetOptions().map_entry:
            yield descriptor
            yield from messages(descriptor.nested_types)


def all_messages():
    for module in MODULES:
        yield from messages(module.DESCRIPTOR.message_types_by_name.values())


def kind(field):
    """Everything that a reader has to know of a field to read it."""
    name = TYPES[field.type]
    if field.message_type is not None:
        entry = field.message_type
        if entry.GetOptions().map_entry:
            return f"map<{', '.join(kind(part) for part in entry.fields)}>"
        name = entry.full_name
    elif field.enum_type is not None:
        name = field.enum_type.full_name
    return f"repeated {name}" if field.is_repeated else name


def described():
    """The contracts as they are now, in the form of contracts.json."""
    found = {"messages": {}, "enums": {}}
    for message in all_messages():
        found["messages"][message.full_name] = {
            str(field.number): [field.name, kind(field)] for field in message.fields
        }
        for enum in message.enum_types:
            found["enums"][enum.full_name] = {str(v.number): v.name for v in enum.values}
    return found


def reserved(message):
    proto = descriptor_pb2.DescriptorProto()
    message.CopyToProto(proto)
    return {n for span in proto.reserved_range for n in range(span.start, span.end)}


def test_the_generated_code_is_that_of_the_proto_files(tmp_path):
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}"),
            *(f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", *map(str, FILES)),
        ],
        check=True,
    )
    fresh = tmp_path / "dovetail" / "contracts"
    present = CHECKOUT / "dovetail" / "contracts"
    names = {path.name for path in fresh.iterdir()}
    assert names == {path.name for path in present.glob("*_pb2.py*")}
    stale = [name for name in names if (fresh / name).read_text() != (present / name).read_text()]
    assert not stale, f"run `make proto`: {sorted(stale)}"


def test_every_contract_is_looked_at_here():
    assert {module.DESCRIPTOR.name for module in MODULES} == {
        str(path.relative_to(PROTO)) for path in FILES
    }


def test_no_released_field_has_changed_its_number_or_type():
    now = described()["messages"]
    for name, fields in RELEASED["messages"].items():
        assert name in now, f"{name} is gone: a contract that ends keeps its message"
        by_name = {message.full_name: message for message in all_messages()}
        for number, (field, released) in fields.items():
            present = now[name].get(number)
            if present is None:
                assert int(number) in reserved(by_name[name]), f"reserve {number} in {name}"
            else:
                assert present[1] == released, f"{name}.{field} = {number}"


def test_no_released_enum_value_has_changed_its_number():
    now = described()["enums"]
    for name, values in RELEASED["enums"].items():
        assert values.items() <= now[name].items()


def test_every_field_is_in_the_list_of_released_ones():
    """A new field is added to contracts.json with the change that brings it."""
    assert described() == RELEASED


def test_every_enum_starts_with_unspecified():
    for name, values in described()["enums"].items():
        assert values["0"].endswith("_UNSPECIFIED"), name


def variant(message_type, change):
    """The same message as another release knows it, under a file and pool of its own."""
    proto = descriptor_pb2.FileDescriptorProto()
    message_type.DESCRIPTOR.file.CopyToProto(proto)
    (message,) = (m for m in proto.message_type if m.name == message_type.DESCRIPTOR.name)
    change(message)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)
    found = pool.FindMessageTypeByName(message_type.DESCRIPTOR.full_name)
    return message_factory.GetMessageClass(found)


def with_a_new_field(message):
    field = message.field.add(name="added_later", number=999, label=1)
    field.type = descriptor_pb2.FieldDescriptorProto.TYPE_STRING


def without_its_last_field(message):
    del message.field[-1]


SAMPLES = [
    batch_pb2.Batch(pipeline="sales", slot=-1, events=3, arrow=b"\0\1"),
    control_pb2.Command(id="1", action=control_pb2.Command.ACTION_DRAIN, issued_at_ms=5),
    control_pb2.Heartbeat(pipeline="sales", figures={"lag": 1.5}, reason="loading"),
    event_pb2.EnrichedEvent(event=b"{", master=b"}", origin=event_pb2.Origin(offset=7)),
    event_pb2.SalesEvent(sale_id=1, customer_id=0, sold_at_ms=9),
    migration_pb2.Migration(entry=b"entry", read_at_ms=8, events=3, cycle=2),
    request_pb2.Request(digest=b"d", accepted=2, partition=1, at_ms=8),
    progress_pb2.Progress(slot=3, answered=[progress_pb2.Progress.Answered(offset=1, events=4)]),
]
each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: type(s).__name__)


@each_sample
def test_an_old_reader_reads_a_new_message_and_keeps_what_it_does_not_know(sample):
    newer = variant(type(sample), with_a_new_field)
    message = newer.FromString(sample.SerializeToString())
    message.added_later = "news"
    read = type(sample).FromString(message.SerializeToString())
    for field, value in sample.ListFields():
        assert getattr(read, field.name) == value
    assert newer.FromString(read.SerializeToString()).added_later == "news"


@each_sample
def test_a_new_reader_reads_an_old_message(sample):
    older = variant(type(sample), without_its_last_field)
    message = older.FromString(sample.SerializeToString())
    message.DiscardUnknownFields()
    read = type(sample).FromString(message.SerializeToString())
    expected = type(sample)()
    expected.CopyFrom(sample)
    expected.ClearField(sample.DESCRIPTOR.fields[-1].name)
    assert read == expected


def test_an_unknown_enum_value_is_kept_and_is_none_of_the_known_ones():
    command = control_pb2.Command.FromString(b"\x20\x63")
    assert command.action == 99
    assert command.action not in control_pb2.Command.Action.values()
    assert command.SerializeToString() == b"\x20\x63"

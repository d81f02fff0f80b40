"""The loops over events, compiled: librdkafka is called by address, without a Python object.

A C structure is seen as words of eight bytes (little-endian, 64-bit; library.py checks that).
Addresses are arguments and not globals, so that the compiled code can be kept on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.kernels import callback, cgutils, intrinsic, ir, kernel, types

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.int64]

# Word numbers within rd_kafka_message_t.
_PARTITION, _PAYLOAD, _LENGTH, _OFFSET = 2, 3, 4, 7

_WORD_BITS = 64


def _word() -> Any:
    return ir.IntType(_WORD_BITS)


def _pointer(builder: Any, address: Any, pointee: Any) -> Any:
    return builder.inttoptr(address, pointee.as_pointer())


@intrinsic
def call(_typing: Any, address: Any, arguments: Any) -> Any:  # noqa: ARG001 - Numba's signature
    """Call the C function at an address with integers or pointers; give back its register.

    A narrower result leaves the upper bits undefined, a void one all of them.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        target, packed = values
        words = [
            context.cast(builder, builder.extract_value(packed, number), kind, types.int64)
            for number, kind in enumerate(signature.args[1])
        ]
        function = ir.FunctionType(_word(), [_word()] * len(words))
        return builder.call(_pointer(builder, target, function), words)

    return types.int64(types.int64, arguments), generate


@intrinsic
def load(_typing: Any, address: Any) -> Any:  # noqa: ARG001 - Numba's signature
    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.load(_pointer(builder, values[0], _word()))

    return types.int64(types.int64), generate


@intrinsic
def store(_typing: Any, address: Any, word: Any) -> Any:  # noqa: ARG001 - Numba's signature
    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        builder.store(values[1], _pointer(builder, values[0], _word()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def copy(_typing: Any, target: Any, source: Any, size: Any) -> Any:  # noqa: ARG001 - as above
    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        byte = ir.IntType(8)
        target, source, size = values
        pointers = _pointer(builder, target, byte), _pointer(builder, source, byte)
        cgutils.raw_memcpy(builder, *pointers, size, 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@kernel
def failed(messages: Words) -> NDArray[np.bool_]:
    """Which of the messages report an error instead of carrying a value."""
    errors = np.empty(len(messages), np.bool_)
    for row in range(len(messages)):
        errors[row] = np.int32(load(messages[row])) != 0
    return errors


@kernel
def locate(messages: Words, partitions: NDArray[np.int32], offsets: Words) -> None:
    for row in range(len(messages)):
        message = messages[row]
        partitions[row] = np.int32(load(message + 8 * _PARTITION))
        offsets[row] = load(message + 8 * _OFFSET)


@kernel
def measure(messages: Words, max_bytes: int, bounds: Words) -> int:
    """Lay values end to end; give back how many fit, at least one so that work goes on."""
    bounds[0] = 0
    for row in range(len(messages)):
        bounds[row + 1] = bounds[row] + load(messages[row] + 8 * _LENGTH)
        if bounds[row + 1] > max_bytes and row > 0:
            return row
    return len(messages)


@kernel
def take(
    messages: Words,
    timestamp_of: int,
    destroy: int,
    bounds: Words,
    data: NDArray[np.uint8],
    timestamps: Words,
    tombstones: NDArray[np.bool_],
) -> None:
    """Copy values and timestamps out of the messages and hand these back to librdkafka."""
    target = data.ctypes.data
    for row in range(len(messages)):
        message = messages[row]
        payload = load(message + 8 * _PAYLOAD)
        tombstones[row] = payload == 0
        copy(target + bounds[row], payload, bounds[row + 1] - bounds[row])
        timestamps[row] = call(timestamp_of, (message, 0))
        call(destroy, (message,))


@kernel
def discard(messages: Words, destroy: int) -> None:
    for row in range(len(messages)):
        call(destroy, (messages[row],))


@kernel
def produce(
    produceva: int,
    handle: int,
    arguments: Words,
    partitions: NDArray[np.int32],
    tombstones: NDArray[np.bool_],
    columns: Words,
    start: int,
    stop: int,
) -> tuple[int, int]:
    """Send rows from start on; give back the row reached and the error object that stopped it.

    `arguments` is an rd_kafka_vu_t[]: its second holds the partition, its fourth the value.
    Each of `columns` says which word of it takes the address of the row's bytes (their size goes
    into the next), and where the column's bytes and bounds are. `partitions` has a row each or
    one for all, `tombstones` a row each or none.
    """
    words = arguments.reshape(-1)
    partition, value = 9 + 1, 3 * 9 + 1
    for row in range(start, stop):
        words[partition] = partitions[row if len(partitions) > 1 else 0]
        for column in range(len(columns)):
            slot, data, bounds = columns[column]
            begin = load(bounds + 8 * row)
            words[slot] = data + begin
            words[slot + 1] = load(bounds + 8 * row + 8) - begin
        if len(tombstones) and tombstones[row]:
            words[value] = 0
        error = call(produceva, (handle, arguments.ctypes.data, len(arguments)))
        if error:
            return row, error
    return stop, 0


@callback("void(int64, int64, int64)")
def count_undelivered(_handle: int, message: int, tally: int) -> None:
    """Delivery report: count what was not delivered, and keep the first reason."""
    code = np.int64(np.int32(load(message)))
    if code == 0:
        return
    if load(tally) == 0:
        store(tally + 8, code)
    store(tally, load(tally) + 1)


def compile_kernels() -> None:
    """Call every kernel on nothing, with the types it is called with."""
    words = np.empty(0, np.int64)
    bounds = np.zeros(1, np.int64)
    flags = np.empty(0, np.bool_)
    bytes_ = np.empty(0, np.uint8)
    failed(words)
    locate(words, np.empty(0, np.int32), words)
    measure(words, 0, bounds)
    take(words, 0, 0, bounds, bytes_, words, flags)
    discard(words, 0)
    produce(
        0,
        0,
        np.zeros((4, 9), np.int64),
        np.zeros(1, np.int32),
        flags,
        np.zeros((1, 3), np.int64),
        0,
        0,
    )

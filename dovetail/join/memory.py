"""Unaligned loads, stores and copies on byte buffers, for the kernels.

Numba copies a slice byte by byte and cannot read an int32 out of a byte buffer; both
are single instructions to LLVM. The caller vouches for the bounds.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _address(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [offset])


def _loader(numba_type: Any, bits: int) -> Any:
    def load(typingctx: Any, array: Any, offset: Any) -> Any:  # noqa: ARG001 - Numba's protocol
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _address(context, builder, signature.args[0], args[0], args[1])
            typed = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
            return builder.load(typed, align=1)

        return numba_type(array, types.intp), codegen

    return intrinsic(load)


def _storer(numba_type: Any, bits: int) -> Any:
    def store(typingctx: Any, array: Any, offset: Any, value: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _address(context, builder, signature.args[0], args[0], args[1])
            typed = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
            builder.store(args[2], typed, align=1)
            return context.get_dummy_value()

        return types.void(array, types.intp, numba_type), codegen

    return intrinsic(store)


load_int64 = _loader(types.int64, 64)
load_int32 = _loader(types.int32, 32)
store_int64 = _storer(types.int64, 64)
store_int32 = _storer(types.int32, 32)


@intrinsic
def copy(typingctx: Any, to: Any, to_offset: Any, source: Any, offset: Any, count: Any) -> Any:  # noqa: ARG001
    """Copy `count` bytes; the two ranges must not overlap."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = _address(context, builder, signature.args[0], args[0], args[1])
        origin = _address(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, target, origin, args[4], 1)
        return context.get_dummy_value()

    return types.void(to, types.intp, source, types.intp, types.intp), codegen


@intrinsic
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:  # noqa: ARG001
    """Ask for the cache line of `array[index]`, to be read a few iterations later."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item = context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype))
        offset = builder.mul(args[1], ir.Constant(args[1].type, item))
        pointer = _address(context, builder, signature.args[0], args[0], offset)
        word = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch",
            [pointer.type],
            ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word]),
        )
        builder.call(function, [pointer, word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen

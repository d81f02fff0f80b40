"""Unaligned loads, stores and copies on byte buffers, for the kernels.

Numba copies a slice byte by byte and cannot read an int32 out of a byte buffer; both
are single instructions to LLVM. Offsets and counts are in bytes, numbers little-endian.
Nothing is checked: the caller vouches for the bounds.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dovetail.kernels import cgutils, intrinsic, ir, types

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

if sys.byteorder != "little":
    raise ImportError("entries travel between nodes as they lie in memory: little-endian only")


def _address(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [offset])


def _loader(bits: int) -> Any:
    def load(_typing: Any, array: Any, _offset: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _address(context, builder, signature.args[0], args[0], args[1])
            typed = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
            return builder.sext(builder.load(typed, align=1), ir.IntType(64))

        return types.int64(array, types.intp), codegen

    return intrinsic(load)


def _storer(bits: int) -> Any:
    def store(_typing: Any, array: Any, _offset: Any, _value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _address(context, builder, signature.args[0], args[0], args[1])
            typed = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
            builder.store(builder.trunc(args[2], ir.IntType(bits)), typed, align=1)
            return context.get_dummy_value()

        return types.void(array, types.intp, types.int64), codegen

    return intrinsic(store)


def _copier(name: str) -> Any:
    def transfer(_typing: Any, to: Any, _to: Any, source: Any, _from: Any, _count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            target = _address(context, builder, signature.args[0], args[0], args[1])
            origin = _address(context, builder, signature.args[2], args[2], args[3])
            getattr(cgutils, name)(builder, target, origin, args[4], 1)
            return context.get_dummy_value()

        return types.void(to, types.intp, source, types.intp, types.intp), codegen

    return intrinsic(transfer)


def _prefetcher() -> Any:
    def fetch(_typing: Any, array: Any, _index: Any) -> Any:
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

    return intrinsic(fetch)


# Numba's own types would have callers pass the typing context as well.

load_int64: Callable[[Bytes, int], int] = _loader(64)
load_int32: Callable[[Bytes, int], int] = _loader(32)
store_int64: Callable[[Bytes, int, int], None] = _storer(64)
store_int32: Callable[[Bytes, int, int], None] = _storer(32)

copy: Callable[[Bytes, int, Bytes, int, int], None] = _copier("raw_memcpy")
"""Copy (to, at, source, at, count); the two ranges must not overlap."""

move: Callable[[Bytes, int, Bytes, int, int], None] = _copier("raw_memmove")
"""As copy, of ranges that may overlap."""

prefetch: Callable[[NDArray[Any], int], None] = _prefetcher()
"""Ask for the cache line of `array[index]`, to be read a few iterations later."""

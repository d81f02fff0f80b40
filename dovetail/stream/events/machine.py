"""What the kernels of this folder read and write memory with, at machine addresses.

Nothing is checked here: a kernel's caller vouches for the bounds.
"""
# An intrinsic's arguments are types, named for those who read the call.
# ruff: noqa: ARG001

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from dovetail.kernels import Kernel, intrinsic, ir, types

_Function = TypeVar("_Function", bound=Callable[..., Any])


def inner(function: _Function) -> _Function:
    """Compile a helper that only kernels call: faster, without its wrappers for Python and C."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    options |= {"nogil": True, "error_model": "numpy"}
    return cast("_Function", Kernel(function, options, kept=False))


def _bits(count: int) -> Any:
    return ir.IntType(count)


def _machine(code: Callable[..., Any]) -> Callable[..., int]:
    """Make a function of words out of the machine's own instructions."""
    return cast("Callable[..., int]", intrinsic(code))


def little(text: bytes) -> int:
    """Give the word that a load of these (at most eight) bytes gives: a signed one, like all."""
    return int.from_bytes(text.ljust(8, b"\0"), "little", signed=True)


def each(byte: int) -> int:
    """Repeat a byte in all eight of a word."""
    return little(bytes([byte] * 8))


@_machine
def load_byte(_context: Any, address: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _bits(8).as_pointer())
        return builder.zext(builder.load(pointer), _bits(64))

    return types.int64(address), generate


@_machine
def load_word(_context: Any, address: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _bits(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.int64(address), generate


@_machine
def store_byte(_context: Any, address: Any, value: Any) -> Any:
    """Store a byte; gives the next address."""

    def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _bits(8).as_pointer())
        builder.store(builder.trunc(args[1], _bits(8)), pointer)
        return builder.add(args[0], ir.Constant(_bits(64), 1))

    return types.int64(types.int64, types.int64), generate


@_machine
def store_word(_context: Any, address: Any, value: Any) -> Any:
    """Store eight bytes; gives the next address."""

    def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _bits(64).as_pointer())
        builder.store(args[1], pointer, align=1)
        return builder.add(args[0], ir.Constant(_bits(64), 8))

    return types.int64(types.int64, types.int64), generate


@_machine
def lowest_bit(_context: Any, word: Any) -> Any:
    """Count the zeros below the lowest one; the word must not be 0."""

    def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(word), generate


@_machine
def double_of_single(_context: Any, bits: Any) -> Any:
    """Give the bits of a double for those of a single."""

    def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        single = builder.bitcast(builder.trunc(args[0], ir.IntType(32)), ir.FloatType())
        return builder.bitcast(builder.fpext(single, ir.DoubleType()), _bits(64))

    return types.int64(types.int64), generate


@_machine
def double_of_int(_context: Any, number: Any) -> Any:
    """Give the bits of the double nearest to a whole number."""

    def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.sitofp(args[0], ir.DoubleType()), _bits(64))

    return types.int64(types.int64), generate


@_machine
def single_of_int(_context: Any, number: Any) -> Any:
    """Give the bits of the single nearest to a whole number."""

    def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        single = builder.sitofp(args[0], ir.FloatType())
        return builder.zext(builder.bitcast(single, ir.IntType(32)), _bits(64))

    return types.int64(types.int64), generate


@_machine
def round_to_odd(_context: Any, high: Any, low: Any, factor: Any) -> Any:
    """Give the upper 64 of the 192 bits of (high, low) × factor, the last of them 1 if inexact."""

    def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        high, low, factor = (builder.zext(arg, _bits(128)) for arg in args)
        shift = ir.Constant(_bits(128), 64)
        below = builder.lshr(builder.mul(low, factor), shift)
        product = builder.add(builder.mul(high, factor), below)
        rest = builder.trunc(product, _bits(64))
        odd = builder.icmp_unsigned(">", rest, ir.Constant(_bits(64), 1))
        return builder.or_(
            builder.trunc(builder.lshr(product, shift), _bits(64)), builder.zext(odd, _bits(64))
        )

    return types.int64(types.int64, types.int64, types.int64), generate


@inner
def word_before(at: int, limit: int) -> int:
    """Load eight bytes from before the limit, zeros beyond it; the buffer has at least eight."""
    if at + 8 <= limit:
        return load_word(at)
    beyond = at + 8 - limit
    # An arithmetic shift would drag the sign in: zeros come with an unsigned one alone.
    return np.int64(np.uint64(load_word(limit - 8)) >> np.uint64(8 * beyond))  # type: ignore[return-value]  # int64 is the kernel's int


@inner
def copy_bytes(to: int, at: int, end: int) -> int:
    """Copy the bytes between two addresses; gives the address behind the copy.

    Up to seven bytes more are read and written, both of which the buffers must have room for.
    """
    size = end - at
    for offset in range(0, size, 8):
        store_word(to + offset, load_word(at + offset))
    return to + size

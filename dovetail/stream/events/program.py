"""A program: what to read of a binary event, and which JSON text to write for it, step by step.

A schema is compiled once into rows of numbers that a kernel then follows for every event:

    ops     one row an op: its code, the text to write before it (where it starts and how long it
            is), and two operands
    table   lists that ops refer to: the symbols of an enum, the branches of a union, …
    text    every piece of text that is written as it stands: names, braces, symbols, defaults
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CODE, TEXT_AT, TEXT_SIZE, A, B, WIDTH = range(6)


@dataclass(frozen=True, slots=True)
class Program:
    ops: NDArray[np.int64]
    table: NDArray[np.int64]
    text: NDArray[np.uint8]


class Writer:
    """Writes a program; every schema written into it starts at a place of its own."""

    def __init__(self) -> None:
        self._ops: list[list[int]] = []
        self._table: list[int] = []
        self._text = bytearray()
        self._places: dict[str, tuple[int, int]] = {}

    @property
    def here(self) -> int:
        """The next op's place."""
        return len(self._ops)

    def op(self, code: int, before: str = "", a: int = 0, b: int = 0) -> int:
        """Add an op that writes this text first; gives its place."""
        self._ops.append([code, *self.text(before), a, b])
        return len(self._ops) - 1

    def aim(self, place: int, a: int) -> None:
        """Give an op its first operand when that is known at last."""
        self._ops[place][A] = a

    def point(self, place: int, b: int) -> None:
        """Give an op its second operand when that is known at last."""
        self._ops[place][B] = b

    def text(self, piece: str) -> tuple[int, int]:
        """Keep a piece of text; gives where it starts and its bytes."""
        if piece not in self._places:
            raw = piece.encode()
            self._places[piece] = len(self._text), len(raw)
            self._text += raw
        return self._places[piece]

    def list(self, numbers: list[int]) -> int:
        """Keep a list of numbers; gives where it starts."""
        self._table += numbers
        return len(self._table) - len(numbers)

    def set(self, place: int, number: int) -> None:
        self._table[place] = number

    def program(self) -> Program:
        """The program as far as it is written; kernels load up to eight bytes beyond a text."""
        return Program(
            np.array(self._ops, np.int64).reshape(-1, WIDTH),
            np.array([*self._table, 0], np.int64),
            np.frombuffer(bytes(self._text) + bytes(8), np.uint8).copy(),
        )

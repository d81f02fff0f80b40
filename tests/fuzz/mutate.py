"""Changes to bytes: the kinds of damage that files, networks and attackers do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

LONGEST = 1 << 16
_NUMBERS = (0, 1, 7, 8, 127, 128, 255, 256, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 63) - 1)


class Mutator:
    def __init__(self, chance: Random, words: Sequence[bytes]) -> None:
        """`words` are what the format is made of."""
        self._chance = chance
        self._words = words
        self._ways: Sequence[Callable[[bytearray], None]] = (
            self._flip,
            self._replace,
            self._insert,
            self._delete,
            self._repeat,
            self._put_number,
            self._put_word,
            self._cut,
        )

    def mutated(self, value: bytes, other: bytes) -> bytes:
        """Change a value a little, at times with a part of another one."""
        changed = bytearray(value)
        if self._chance.random() < 0.2:
            at = self._place(changed)
            first, end = self._span(other)
            changed[at:at] = other[first:end]
        for _ in range(self._chance.choice((1, 1, 1, 2, 3, 8))):
            self._chance.choice(self._ways)(changed)
        return bytes(changed[:LONGEST])

    def _place(self, value: bytes | bytearray) -> int:
        return self._chance.randrange(len(value) + 1)

    def _span(self, value: bytes | bytearray) -> tuple[int, int]:
        first = self._place(value)
        return first, min(len(value), first + int(self._chance.paretovariate(0.7)))

    def _flip(self, value: bytearray) -> None:
        if value:
            value[self._chance.randrange(len(value))] ^= 1 << self._chance.randrange(8)

    def _replace(self, value: bytearray) -> None:
        if value:
            value[self._chance.randrange(len(value))] = self._chance.randrange(256)

    def _insert(self, value: bytearray) -> None:
        at = self._place(value)
        value[at:at] = self._chance.randbytes(self._chance.randint(1, 8))

    def _delete(self, value: bytearray) -> None:
        first, end = self._span(value)
        del value[first:end]

    def _repeat(self, value: bytearray) -> None:
        first, end = self._span(value)
        value[first:first] = value[first:end] * self._chance.choice((1, 2, 30))

    def _put_number(self, value: bytearray) -> None:
        size = self._chance.choice((1, 2, 4, 8))
        number = self._chance.choice(_NUMBERS) * self._chance.choice((1, -1))
        at = self._place(value)
        written = (number % (1 << 8 * size)).to_bytes(size, self._chance.choice(("little", "big")))
        value[at : at + size] = written

    def _put_word(self, value: bytearray) -> None:
        at = self._place(value)
        end = at if self._chance.random() < 0.5 else self._span(value)[1]
        value[at:end] = self._chance.choice(self._words)

    def _cut(self, value: bytearray) -> None:
        del value[self._place(value) :]

"""Questions that come by HTTP and are answered in the loop's thread, between two steps.

What the loop works on is its own: nobody else looks at it while it works. A question costs it a
few milliseconds, one at a turn, and nothing while nobody asks.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLateError
from typing import TYPE_CHECKING, Any, TypeVar

from dovetail.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

_Answer = TypeVar("_Answer")

_MOST = 8
"""Questions that wait at a time."""


class Questions:
    def __init__(self) -> None:
        self._asked: deque[tuple[Callable[[], Any], Future[Any]]] = deque()

    def ask(self, question: Callable[[], _Answer], within_s: float = 5.0) -> _Answer:
        """Have a question answered between two steps; for any thread but the loop's."""
        if len(self._asked) >= _MOST:
            raise Unavailable("too many questions wait for an answer: ask again later")
        future: Future[_Answer] = Future()
        self._asked.append((question, future))
        try:
            return future.result(within_s)
        except TooLateError:
            raise Unavailable(
                f"no answer within {within_s:.0f} s: a step takes long, or is tried again"
            ) from None

    def answer(self) -> None:
        """Answer the oldest; for the loop's thread."""
        if not self._asked:
            return
        question, future = self._asked.popleft()
        try:
            future.set_result(question())
        except Exception as error:  # noqa: BLE001 - whoever asks is told; the loop goes on
            future.set_exception(error)

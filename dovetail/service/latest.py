"""What a task last gave that runs again and again in a thread of its own."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from dovetail.errors import DovetailError, NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")
_Given_co = TypeVar("_Given_co", covariant=True)


class News(Protocol[_Given_co]):
    """Where somebody else's results are picked up."""

    def take(self) -> _Given_co | None:
        """The latest result, once; None if there is none since the last call."""
        ...

    def close(self) -> None: ...


class Latest(Generic[_Result]):
    """Runs the task at once and then so often; keeps the latest result until it is taken.

    Where the task cannot reach what it needs, it is tried again after `retry_s`. What no waiting
    mends, a missing permission or a bug, is raised by `take`, to whoever relies on it.
    """

    def __init__(
        self,
        name: str,
        task: Callable[[], _Result],
        every_s: float,
        retry_s: float,
        close: Callable[[], None],
    ) -> None:
        """`close` lets go of what the task holds; it is called when the task does not run."""
        self._name = name
        self._task = task
        self._every_s = every_s
        self._retry_s = retry_s
        self._close = close
        self._result: _Result | None = None
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def take(self) -> _Result | None:
        if self._failure is not None:
            raise self._failure
        result, self._result = self._result, None
        return result

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            try:
                self._result = self._task()
                pause = self._every_s
            except NotAllowedError as denied:
                self._failure = denied
                break
            except DovetailError as error:
                log.warning("%s: trying again", self._name, extra={"reason": str(error)})
                pause = self._retry_s
            except BaseException as failure:  # noqa: BLE001 - raised by take
                self._failure = failure
                break
        self._close()

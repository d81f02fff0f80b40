from __future__ import annotations

import threading

import pytest

from dovetail.errors import NotAllowedError, Unavailable
from dovetail.service.latest import Latest

SOON_S = 0.001
NEVER_S = 3600.0


class Task:
    """Gives what it is told, and says when it has been called so often."""

    def __init__(self, *results):
        self._results = list(results)
        self._calls = 0
        self._called = threading.Condition()
        self.closed = threading.Event()

    def __call__(self):
        with self._called:
            result = self._results[min(self._calls, len(self._results) - 1)]
            self._calls += 1
            self._called.notify_all()
        if isinstance(result, BaseException):
            raise result
        return result

    def wait_for(self, calls):
        with self._called:
            assert self._called.wait_for(lambda: self._calls >= calls, timeout=30)


def latest_of(task, every_s=SOON_S, retry_s=SOON_S):
    return Latest("test", task, every_s, retry_s, task.closed.set)


def taken(latest):
    """The next result, however soon it is there."""
    while (result := latest.take()) is None:
        pass
    return result


def test_a_result_is_taken_once():
    task = Task("first")
    latest = latest_of(task, every_s=NEVER_S)
    assert taken(latest) == "first"
    assert latest.take() is None
    latest.close()
    assert task.closed.is_set()


def test_the_task_runs_again_and_the_latest_result_counts():
    task = Task(1, 2, 3)
    latest = latest_of(task)
    task.wait_for(calls=5)
    assert taken(latest) == 3
    latest.close()


def test_what_cannot_be_reached_is_tried_again():
    task = Task(Unavailable("gone"), Unavailable("gone"), "there")
    latest = latest_of(task, every_s=NEVER_S)
    assert taken(latest) == "there"
    latest.close()


@pytest.mark.parametrize("failure", [ZeroDivisionError("a bug"), NotAllowedError("SELECT")])
def test_what_no_waiting_mends_is_raised_where_the_result_is_awaited(failure):
    task = Task(failure)
    latest = latest_of(task)
    assert task.closed.wait(30)
    with pytest.raises(type(failure), match=str(failure)):
        latest.take()
    latest.close()

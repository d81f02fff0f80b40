"""PCSRJ over n nodes: one engine a thread, each with its slots of the stream and of R (§3).

                           ┌─► inbox 0 ─► engine 0 ◄─ relation 0 ─┐
    events ─► slot ─► node ┤                                      ├─► answers, in any order
                           └─► inbox 1 ─► engine 1 ◄─ relation 1 ─┘

1. `offer` splits a batch by the slots of its keys, and waits while a node's inbox is full.
2. A node lets in what its inbox holds, as far as its own memory goes, then reads once, and so on;
   it rests while it has nothing pending. What it answers goes to the one outbox.
3. `finish` says that no more events come and gives answers until no node has any left.

Every event is answered once, by its key's node. The caller may be a single thread: while it
waits for an inbox it takes answers out, so that nobody waits for anybody in a circle. If a node
fails, all stop, and the caller's next call raises that node's error.

Memory: each engine has its own budget; beside it, `depth` batches an inbox and one in work, and
`depth` answers a node in the outbox.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from dovetail.errors import ConfigError
from dovetail.join.engine import fed
from dovetail.join.entry import MasterRows
from dovetail.join.exchange import Events
from dovetail.join.mapper import groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dovetail.join.columns import JoinKeys, SmallInts
    from dovetail.join.engine import Engine
    from dovetail.join.exchange import Answers, Read, Request


class Source(Protocol):
    """One node's part of R: all rows of every key in the node's slots."""

    def read(self, request: Request, most: int) -> Read:
        """Read what is asked for, no more than `most` bytes of it if it can be had in parts."""
        ...


class Slots:
    """Which node a key belongs to: its slot, by a function, and the slot's owner.

    The same object splits R and the stream, so that they cannot disagree. `slots_of` is
    `Mapper(…).slots`, or any function of keys; PCSRJ's own is odd or even.
    """

    def __init__(
        self, slots_of: Callable[[JoinKeys], SmallInts], owners: Sequence[int] | SmallInts
    ) -> None:
        self._slots_of = slots_of
        self._owners = np.asarray(owners, np.int32)
        self.nodes = int(self._owners.max(initial=-1)) + 1

    @classmethod
    def in_turn(cls, slots_of: Callable[[JoinKeys], SmallInts], slots: int, nodes: int) -> Self:
        """Give slots to nodes by turns."""
        return cls(slots_of, np.arange(slots, dtype=np.int32) % nodes)

    def nodes_of(self, keys: JoinKeys) -> SmallInts:
        slots = self._slots_of(keys)
        if len(slots) and not 0 <= slots.min() <= slots.max() < len(self._owners):
            raise ConfigError(
                f"keys have slots from {slots.min()} to {slots.max()}, and only slots 0 to "
                f"{len(self._owners) - 1} have an owner: give every slot one"
            )
        return self._owners[slots]

    def split_events(self, events: Events) -> list[tuple[int, Events]]:
        """Each node's events in their order; nodes without any are left out."""
        return [
            (node, Events(events.keys.take(at), events.data.take(at), events.ids[at]))
            for node, at in groups(self.nodes_of(events.keys))
        ]

    def split_rows(self, rows: MasterRows) -> list[MasterRows]:
        """Each node's rows, for every node."""
        nobodys = np.empty(0, np.int64)
        places = dict(groups(self.nodes_of(rows.keys)))
        return [
            MasterRows(rows.keys.take(at), rows.rows.take(at))
            for at in (places.get(node, nobodys) for node in range(self.nodes))
        ]


@dataclass(frozen=True, slots=True)
class Node:
    engine: Engine
    source: Source


class Nodes:
    """Runs the nodes until it is closed: use it in a `with` statement.

    `depth` is how many batches wait in an inbox; answers likewise.
    """

    def __init__(self, nodes: Sequence[Node], slots: Slots, *, depth: int = 4) -> None:
        if slots.nodes > len(nodes):
            raise ConfigError(
                f"slots belong to {slots.nodes} nodes, and there are {len(nodes)}: add nodes, or "
                f"give their slots to others"
            )
        self._slots = slots
        self._post = _Post(len(nodes), depth)
        self._threads = [
            # Daemons, so that a caller who forgets to close can still end.
            threading.Thread(
                target=_work, args=(number, node, self._post), name=f"node-{number}", daemon=True
            )
            for number, node in enumerate(nodes)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def offer(self, events: Events) -> list[Answers]:
        """Hand all events to their nodes; return the answers that came while it waited."""
        came: list[Answers] = []
        for node, part in self._slots.split_events(events):
            came += self._post.deliver(node, part)
        return came

    def ready(self) -> list[Answers]:
        """The answers that are there now, without waiting."""
        return self._post.collect()

    def finish(self) -> Iterator[Answers]:
        """End the stream, and give answers as they come until every event has its own."""
        self._post.end_stream()
        while answers := self._post.await_answers():
            yield from answers

    def close(self) -> None:
        """Stop all nodes and wait for them; events without an answer are dropped.

        A read under way is waited for, and what was offered is not joined any further.
        """
        self._post.close()
        for thread in self._threads:
            thread.join()


def _work(number: int, node: Node, post: _Post) -> None:
    try:
        _join(number, node, post)
    except _Closed:
        pass
    except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
        error.add_note(f"in node {number}")
        post.fail(error)
    finally:
        post.leave()


def _join(number: int, node: Node, post: _Post) -> None:
    engine = node.engine
    waiting: Events | None = None
    while True:
        waiting = _let_in(number, engine, post, waiting)
        request = engine.wants()
        if request is not None:
            for answers in fed(engine, node.source.read(request, engine.disk_buffer)):
                post.publish(answers)
        elif waiting is None and post.has_ended(number):
            return


def _let_in(number: int, engine: Engine, post: _Post, waiting: Events | None) -> Events | None:
    """Let in what waits and what the inbox holds; return what had no room.

    An inbox's depth at most, so that pending events get their read however fast others come.
    """
    for _ in range(post.depth):
        events = waiting if waiting is not None else post.receive(number, wait=not engine.pending)
        if events is None:
            return None
        offered = engine.offer(events)
        post.publish(offered.answers)
        if offered.accepted < len(events):
            return events.slice(offered.accepted, len(events))
        waiting = None
    return None


class _Closed(Exception):  # noqa: N818 - tells a node to end, which is no mistake
    pass


class _Post:
    """Inboxes and the outbox behind one lock: whoever waits, waits for any change at all.

    Batches change hands a few hundred times a second, so that one lock costs nothing, and the
    caller can wait for room in an inbox and for answers at the same time.
    """

    def __init__(self, nodes: int, depth: int) -> None:
        self.depth = depth
        self._inboxes: list[deque[Events]] = [deque() for _ in range(nodes)]
        self._outbox: list[Answers] = []
        self._most_answers = depth * nodes
        self._at_work = nodes
        self._ended = False
        self._closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    # What the caller calls.

    def deliver(self, node: int, events: Events) -> list[Answers]:
        came: list[Answers] = []
        with self._changed:
            while True:
                came += self._take_outbox()
                if self._closed or self._ended:
                    raise ValueError("the nodes take no more events: the stream has ended")
                if len(self._inboxes[node]) < self.depth:
                    break
                self._changed.wait()
            self._inboxes[node].append(events)
            self._changed.notify_all()
        return came

    def collect(self) -> list[Answers]:
        with self._changed:
            return self._take_outbox()

    def await_answers(self) -> list[Answers]:
        """The next answers; none only when no node is at work any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._outbox or self._error or not self._at_work)
            return self._take_outbox()

    def end_stream(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _take_outbox(self) -> list[Answers]:
        if self._error is not None:
            raise self._error
        taken, self._outbox = self._outbox, []
        if taken:
            self._changed.notify_all()
        return taken

    # What a node's thread calls.

    def receive(self, node: int, *, wait: bool) -> Events | None:
        """The next batch; None if there is none now, or, after waiting, if none will come."""
        inbox = self._inboxes[node]
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: inbox or self._ended or self._closed)
            self._go_on()
            if not inbox:
                return None
            self._changed.notify_all()
            return inbox.popleft()

    def has_ended(self, node: int) -> bool:
        with self._changed:
            return self._ended and not self._inboxes[node]

    def publish(self, answers: Answers) -> None:
        with self._changed:
            if len(answers):
                self._changed.wait_for(
                    lambda: len(self._outbox) < self._most_answers or self._closed
                )
            self._go_on()
            if len(answers):
                self._outbox.append(answers)
                self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._closed = True
            self._changed.notify_all()

    def leave(self) -> None:
        with self._changed:
            self._at_work -= 1
            self._changed.notify_all()

    def _go_on(self) -> None:
        if self._closed:
            raise _Closed

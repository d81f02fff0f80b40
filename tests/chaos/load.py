"""Demo events at a bounded rate, for as long as a run lasts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dovetail.demo.events import EventBatch
from dovetail.demo.generate import GenerateSettings, generate
from dovetail.demo.sender import KafkaSender
from dovetail.join.columns import Column

if TYPE_CHECKING:
    from collections.abc import Callable

    from dovetail.testing.pipeline import RunningPipeline


_PATIENCE_S = 270.0
"""A broker may be away for minutes, or killed again as soon as it is back. Less than Kafka's own
`delivery.timeout.ms`, after which events are given up."""


class Load:
    """Sends from a thread of its own. Idempotent: what a broker's restart makes it repeat is
    on the topic once.
    """

    def __init__(
        self,
        pipeline: RunningPipeline,
        rate: float,
        seed: int,
        keys: int,
        respell: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """`respell` changes how an event is written, for a pipeline with other fields."""
        # A broker that is back is to be found in a moment; that it is away is told by the timeline.
        config = pipeline.settings.client({"reconnect.backoff.max.ms": 500, "log_level": 0})
        self._settings = GenerateSettings(rate=rate, skew=1.0, seed=seed, keys=keys)
        self._config = config
        self._topic = pipeline.topology.source.name
        self._sender = _Counted(KafkaSender(config, self._topic, _PATIENCE_S), respell)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load")

    @property
    def sent(self) -> int:
        return self._sender.sent

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End, and wait until the broker has everything that was sent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Raise what ended it before its time."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            generate(
                self._settings,
                self._config,
                self._topic,
                lambda _: None,
                self._stop,
                sender=self._sender,
            )
        except BaseException as failure:  # noqa: BLE001 - raised by check(), in the run's own thread
            self._failure = failure


class _Counted:
    def __init__(self, sender: KafkaSender, respell: Callable[[bytes], bytes] | None) -> None:
        self._sender = sender
        self._respell = respell
        self.sent = 0

    def send(self, batch: EventBatch) -> None:
        self._sender.send(_respelled(batch, self._respell) if self._respell else batch)
        self.sent += len(batch)

    def flush(self) -> None:
        self._sender.flush()


def _respelled(batch: EventBatch, respell: Callable[[bytes], bytes]) -> EventBatch:
    events = Column.of([respell(event or b"") for event in batch.values()])
    return EventBatch(events.data, events.bounds, batch.tombstones, batch.kinds)

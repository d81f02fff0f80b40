"""Every metric that a service shows, in one table: name, kind, meaning, labels.

Names follow Prometheus: base units, `_total` behind what only grows. A label has few values, known
beforehand: outcomes, reasons, slots, jobs; never a key, an offset or a text. Of which pipeline,
service and node a figure is, the target's labels say (docs/decisions/0021); control speaks of whole
pipelines, and names them itself.

A stage's `figures()` are numbers by name, as heartbeats carry them. FIGURES says which metric each
is; one whose name ends with a dot stands for a family, and what follows the dot is the label:
`slot_rate.3`. A figure without a row here is an error, not a metric that nobody can explain.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable

    Family = CounterMetricFamily | GaugeMetricFamily


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Declared:
    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()

    def family(self, samples: Iterable[tuple[tuple[str, ...], float]] = ()) -> Family:
        """The metric with these samples, each a value behind the values of the labels."""
        of = CounterMetricFamily if self.kind is Kind.COUNTER else GaugeMetricFamily
        family: Family = of(self.name, self.text, labels=self.labels)
        for labels, value in samples:
            family.add_metric(list(labels), value)
        return family


def _gauge(name: str, text: str, *labels: str) -> Declared:
    return Declared(f"dovetail_{name}", Kind.GAUGE, text, labels)


def _counter(name: str, text: str, *labels: str) -> Declared:
    return Declared(f"dovetail_{name}_total", Kind.COUNTER, text, labels)


def _histogram(name: str, text: str) -> Declared:
    return Declared(f"dovetail_{name}", Kind.HISTOGRAM, text)


# --- what every stage counts, of committed steps

TAKEN = _counter("events_taken", "Events that the stage has taken in")
EVENTS = _counter(
    "events",
    "Events by what the stage did with them; dead ones by reason, shed ones by strategy",
    "outcome",
    "reason",
)
OUTPUTS = _counter("outputs", "Messages sent on as answers; an event may have many or none")
HITS = _counter("cache_answers", "Events that were answered from the cache")
STEP = _histogram("step_seconds", "A step from its first to its last call, commit included")
LATENCY = _histogram(
    "latency_seconds", "From the source record's timestamp to the output being sent"
)
EVENT_TIME_LAG = _histogram(
    "event_time_lag_seconds",
    "From an event's own time to its being read; what is before 0 is ahead of the clock",
)
HTTP_REQUESTS = _counter("http_requests", "Requests to /v1/events, by answer", "status")
HTTP_EVENTS = _counter("http_events", "Events taken by HTTP")

STAGE = (
    *(TAKEN, EVENTS, OUTPUTS, HITS, STEP, LATENCY, EVENT_TIME_LAG),
    *(HTTP_REQUESTS, HTTP_EVENTS),
)

# --- figures of this moment, by their names in heartbeats

FIGURES = {
    # every stage
    "ready": _gauge("ready", "1 while the stage has partitions and all it needs, else 0"),
    "alarm": _gauge("alarm", "1 while somebody should look: the match rate has collapsed"),
    "lag": _gauge("lag_records", "Records of the stage's topic that it has yet to read"),
    "refused_messages": _counter(
        "refused_messages", "Messages of the stage's topic that are not the pipeline's"
    ),
    # memory
    "budget_bytes": _gauge("budget_bytes", "What the phase may hold of the node's memory"),
    "held_bytes": _gauge("held_bytes", "What the phase holds, filled or not"),
    "component_bytes.": _gauge(
        "component_bytes", "What each part of the phase holds; the sum is held", "component"
    ),
    # mapper
    "slot_skew": _gauge("slot_skew_ratio", "The busiest slot's events over the mean, lately"),
    "slot_rate.": _gauge("slot_events_per_second", "Events sent to a slot, lately", "slot"),
    "behind_seconds": _gauge("behind_seconds", "How long what waits for the phases would take"),
    "arrival_rate": _gauge("arrival_events_per_second", "Events that arrive, as shedding sees it"),
    "service_rate": _gauge("service_events_per_second", "Misses that the disk phase answers"),
    "shedding": _gauge("shedding", "1 while events are shed, else 0"),
    # cache phase
    "cache_used_bytes": _gauge("cache_used_bytes", "Bytes of the cache that hold entries"),
    "cache_keys": _gauge("cache_keys", "Join keys in the cache, those without a row included"),
    "cache_hits": _counter("cache_hits", "Lookups in the cache that found an entry"),
    "cache_misses": _counter("cache_misses", "Lookups in the cache that found none"),
    "cache_taken": _counter("cache_migrations", "Migrations that have arrived at the cache"),
    "cache_evicted": _counter("cache_evictions", "Keys that made room or were too old"),
    "cache_refused": _counter("cache_refusals", "Keys that were not worth a place"),
    "cache_tombstones": _counter("cache_tombstones", "Keys deleted from the migrations topic"),
    "cache_oldest_s": _gauge("cache_oldest_age_seconds", "Age of the oldest rows in the cache"),
    "cache_loaded": _gauge(
        "cache_loaded_ratio", "How much of the cache is rebuilt after a start or a move; 1: all"
    ),
    "match_rate": _gauge("match_ratio", "Of the latest events, those that found a master row"),
    "match_rate_usual": _gauge("match_usual_ratio", "What share finds a master row usually"),
    # disk phase
    "pending_events": _gauge("pending_events", "Events that wait for their master rows"),
    "pending_bytes": _gauge("pending_bytes", "What the pending events take"),
    "collected_bytes": _gauge("collected_bytes", "Rows collected for keys that still wait"),
    "window_events": _gauge("window_events", "Events from the oldest pending to the newest"),
    "window_capacity": _gauge("window_capacity_events", "Events that the window can hold"),
    "held_batches": _gauge("held_batches", "Batches read that have no room in the join yet"),
    "accepted": _counter("join_events", "Events let into the join"),
    "reads": _counter("master_reads", "Reads of R: pages, a partition, or the rows of keys"),
    "read_units": _counter("master_read_units", "Pages, partitions or keys that were read"),
    "rows_read": _counter("master_rows", "Master rows that were read"),
    "queries": _counter("master_queries", "Statements that read R in the database"),
    "migrations": _counter("migrations", "Keys sent to the cache"),
    "cycle": _counter("cycles", "Whole passes over R, or turns of who was pending"),
    "scan_pages": _gauge("scan_pages", "b: pages of R that a read of the scan asks for"),
    "scan_page": _gauge("scan_page", "Where in R the scan reads next"),
    "master_pages": _gauge("master_pages", "Pages of R that the scan passes"),
    "choices": _counter("algorithm_choices", "How often `auto` has chosen an algorithm"),
    "algorithm.": _gauge("algorithm_info", "1 for the algorithm that runs", "algorithm"),
    "promised_rate": _gauge(
        "promised_events_per_second", "What the chosen algorithm promises by the cost model"
    ),
    # enrich, on Spark
    "batch_seconds": _gauge("batch_seconds", "How long the last batch took on Spark"),
    "batch_events": _gauge("batch_events", "Events of the last batch on Spark"),
}

# --- control: the pipeline as a whole, from the ledgers and the heartbeats

PIPELINE_TAKEN = _counter("pipeline_taken", "Events taken in from the source", "pipeline")
PIPELINE_EVENTS = _counter(
    "pipeline_events",
    "Events by what became of them; dead ones by reason, shed ones by strategy",
    *("pipeline", "outcome", "reason"),
)
PIPELINE_BACKFILLED = _counter(
    "pipeline_backfilled_events",
    "Events that backfill has given another outcome, by what had become of them before",
    *("pipeline", "outcome"),
)
PIPELINE_OUTPUTS = _counter("pipeline_outputs", "Messages sent to the sink", "pipeline")
PIPELINE_COPIES = _counter(
    "pipeline_copies", "What a chain has made more of events with many rows", "pipeline"
)
PIPELINE_HIT_RATIO = _gauge(
    "pipeline_hit_ratio", "Of all answers so far, those of the caches", "pipeline"
)
PIPELINE_IN_FLIGHT = _gauge(
    "pipeline_in_flight_events", "Events taken in and not answered yet", "pipeline"
)
PIPELINE_WAITING = _gauge(
    "pipeline_waiting_records", "Records of the source that nobody has taken yet", "pipeline"
)
PIPELINE_BACKLOG = _gauge(
    "pipeline_backlog_events", "Events passed on to a stage and not taken yet", "pipeline", "stage"
)
PIPELINE_PROBLEMS = _gauge(
    "pipeline_conservation_problems", "Equations between the ledgers that do not hold", "pipeline"
)
PIPELINE_NODES = _gauge("pipeline_nodes", "Nodes that the pipeline's file asks for", "pipeline")
MEMBER_UP = _gauge(
    "member_up", "1 if the process was heard of lately, else 0", "pipeline", "member"
)
MEMBER_READY = _gauge(
    "member_ready", "1 if the process said last that it was ready", "pipeline", "member"
)
MEMBER_SILENCE = _gauge(
    "member_silence_seconds", "Since when the process was not heard of", "pipeline", "member"
)
PLAN_VERSION = _gauge("plan_version", "Number of the latest cache plan", "pipeline")
PLAN_MADE = _gauge("plan_made_timestamp_seconds", "When the latest plan was made", "pipeline")
PLAN_SENT = _gauge("plan_sent_timestamp_seconds", "When it was sent to the caches", "pipeline")
PLAN_SENT_KEYS = _gauge("plan_sent_keys", "Keys of it that the caches lacked", "pipeline")
PLAN_HIT_RATIO = _gauge(
    "plan_expected_hit_ratio", "Share of events that the plan expects to hit", "pipeline"
)
RUN_STATE = _gauge(
    "spark_run_state", "1 for the state of a job's last run", "pipeline", "spark_job", "state"
)
RUN_SECONDS = _gauge(
    "spark_run_duration_seconds",
    "How long a job's last run took, or takes",
    "pipeline",
    "spark_job",
)
RUN_STARTED = _gauge(
    "spark_run_start_timestamp_seconds", "When a job's last run began", "pipeline", "spark_job"
)

CONTROL = (
    *(PIPELINE_TAKEN, PIPELINE_EVENTS, PIPELINE_BACKFILLED, PIPELINE_OUTPUTS, PIPELINE_COPIES),
    PIPELINE_HIT_RATIO,
    *(PIPELINE_IN_FLIGHT, PIPELINE_WAITING, PIPELINE_BACKLOG, PIPELINE_PROBLEMS, PIPELINE_NODES),
    *(MEMBER_UP, MEMBER_READY, MEMBER_SILENCE),
    *(PLAN_VERSION, PLAN_MADE, PLAN_SENT, PLAN_SENT_KEYS, PLAN_HIT_RATIO),
    *(RUN_STATE, RUN_SECONDS, RUN_STARTED),
)


def _run(name: str, text: str) -> Declared:
    return _gauge(f"spark_run_{name}", text, "pipeline", "spark_job")


RUN_FIGURES = {
    "tasks": _run("tasks", "Tasks of Spark's that the run has so far"),
    "tasks_done": _run("done_tasks", "Those of them that are done"),
    # snapshot, frequency
    "version": _run("version", "Number of the version that the run has written"),
    "rows": _run("rows", "Rows that were written"),
    "bytes": _run("bytes", "Bytes that were written"),
    "new_records": _run("new_records", "Records of the source that were not counted before"),
    "lost_records": _run("lost_records", "Records that were gone before they were counted"),
    "events": _run("counted_events", "Events that all counts are of"),
    "pairs": _run("pairs", "Pairs of a key and an hour that are kept"),
    "error": _run("error_ratio", "Of a sketched hour's events, what a count may be too high by"),
    "count_s": _run("count_seconds", "How long counting took"),
    "plan": _run("plan", "Number of the plan that was made"),
    "plan_s": _run("plan_seconds", "How long planning took"),
    "planned_keys": _run("planned_keys", "Keys that the plan caches"),
    "expected_hit_rate": _run("expected_hit_ratio", "Share of events that the plan expects to hit"),
    "send_s": _run("send_seconds", "How long sending took"),
    "sent_keys": _run("sent_keys", "Keys that the caches lacked and were sent"),
    "evicted_keys": _run("evicted_keys", "Keys that had to leave for the plan's"),
    # enrich
    "in": _run("taken_events", "Events that the run has taken in"),
    "enriched": _run("enriched_events", "Events that the run has enriched"),
    "unmatched": _run("unmatched_events", "Events that yield no output"),
    "outputs": _run("outputs", "Messages that the run has sent to the sink"),
    # backfill
    "messages": _run("messages", "Messages that the run has looked at"),
    "lost_messages": _run("lost_messages", "Messages that were gone before they were looked at"),
    "completed": _run("completed_events", "Events that the run has enriched, late"),
    "of_shed": _run("of_shed_events", "Events that were shed and are answered now"),
    "of_unmatched": _run("of_unmatched_events", "Events that were unmatched and are enriched now"),
    "of_parked": _run("of_parked_events", "Events that were parked and are answered now"),
    "newly_unmatched": _run("newly_unmatched_events", "Shed or parked events without a master row"),
    "still_unmatched": _run("still_unmatched_events", "Unmatched events that still are"),
    "strange_messages": _run("strange_messages", "Messages that are not the pipeline's"),
}

ALL = (*STAGE, *FIGURES.values(), *CONTROL, *RUN_FIGURES.values())


def metric_of(figure: str) -> tuple[Declared, tuple[str, ...]]:
    """The metric that shows a figure, and its labels' values."""
    if figure in FIGURES:
        return FIGURES[figure], ()
    family, dot, label = figure.partition(".")
    if dot and family + dot in FIGURES:
        return FIGURES[family + dot], (label,)
    raise KeyError(f"figure {figure!r} is no metric: give it a row in dovetail/service/declared.py")

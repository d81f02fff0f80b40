"""Whether a pipeline is well, at a glance."""

from __future__ import annotations

from deploy.grafana.model import Dashboard, Kind, Panel, Query, Row, Unit
from deploy.grafana.queries import OF, PROCESS, each, rate

DASHBOARD = Dashboard(
    "overview",
    "overview",
    "Whether the pipeline is well: what comes in, what comes out, what waits, who is there.",
    (
        Row(
            "Now",
            (
                Panel(
                    "Events in",
                    "Taken in from the source, a second over the last minute.",
                    (Query(each("pipeline:dovetail_taken:rate1m", OF)),),
                    *(Unit.RATE, Kind.NUMBER, 3),
                ),
                Panel(
                    "Outputs",
                    "Messages to the sink; an event with many master rows has many.",
                    (Query(each("pipeline:dovetail_outputs:rate1m", OF)),),
                    *(Unit.RATE, Kind.NUMBER, 3),
                ),
                Panel(
                    "Behind",
                    "How long what is not answered yet takes at this rate.",
                    (Query(each("pipeline:dovetail_behind:seconds", OF)),),
                    *(Unit.SECONDS, Kind.NUMBER, 3),
                    bounds=(10, 60),
                ),
                Panel(
                    "Latency p99",
                    "From the source record's timestamp to the output, for 99 of 100 outputs.",
                    (Query(each("pipeline:dovetail_latency_seconds:p99_1m", OF)),),
                    *(Unit.SECONDS, Kind.NUMBER, 3),
                ),
                Panel(
                    "From the cache",
                    "Share of the answers that needed no read of the master table.",
                    (Query(each("pipeline:dovetail_cache_answers:ratio_rate1m", OF)),),
                    *(Unit.SHARE, Kind.NUMBER, 3),
                ),
                Panel(
                    "Sum off by",
                    "Equations between the ledgers that do not hold. Anything but 0 is a fault.",
                    (Query(each("dovetail_pipeline_conservation_problems", OF)),),
                    *(Unit.COUNT, Kind.NUMBER, 3),
                    bounds=(1, 1),
                ),
                Panel(
                    "Processes heard",
                    "Of those that control knows, the share that was heard in the last seconds.",
                    (Query(f"avg({each('dovetail_member_up', OF)})"),),
                    *(Unit.SHARE, Kind.NUMBER, 3),
                    bounds=(1, 0.5),
                ),
                Panel(
                    "Alerts",
                    "That fire now.",
                    (
                        Query(
                            'count(ALERTS{alertstate="firing", alertname=~"Dovetail.*"})'
                            " or vector(0)"
                        ),
                    ),
                    *(Unit.COUNT, Kind.NUMBER, 3),
                    bounds=(1, 1),
                ),
            ),
        ),
        Row(
            "Flow",
            (
                Panel(
                    "Events by outcome",
                    "What became of events in the end. When steady, it adds up to what comes in.",
                    (
                        Query(each("pipeline_outcome:dovetail_events:rate1m", OF), "{{outcome}}"),
                        Query(each("pipeline:dovetail_taken:rate1m", OF), "in"),
                    ),
                    Unit.RATE,
                ),
                Panel(
                    "Not answered yet",
                    "Waiting in the source, and taken from it without an answer yet.",
                    (
                        Query(each("dovetail_pipeline_waiting_records", OF), "waiting"),
                        Query(each("dovetail_pipeline_in_flight_events", OF), "in flight"),
                    ),
                    stacked=True,
                ),
                Panel(
                    "In front of each stage",
                    "Where events queue up: the largest is the bottleneck.",
                    (Query(each("dovetail_pipeline_backlog_events", OF), "{{stage}}"),),
                ),
                Panel(
                    "Latency",
                    "From the source record's timestamp to the output being sent.",
                    (
                        Query(each("pipeline:dovetail_latency_seconds:p50_1m", OF), "p50"),
                        Query(each("pipeline:dovetail_latency_seconds:p99_1m", OF), "p99"),
                    ),
                    Unit.SECONDS,
                ),
                Panel(
                    "Answers from the cache",
                    "Now, and of all answers since the pipeline began.",
                    (
                        Query(each("pipeline:dovetail_cache_answers:ratio_rate1m", OF), "now"),
                        Query(each("dovetail_pipeline_hit_ratio", OF), "ever"),
                    ),
                    Unit.SHARE,
                ),
                Panel(
                    "Queries to the master database",
                    "Statements a second, of all nodes together.",
                    (Query(each("pipeline:dovetail_master_queries:rate1m", OF), "queries"),),
                    Unit.RATE,
                ),
            ),
        ),
        Row(
            "Conservation",
            (
                Panel(
                    "in = enriched + unmatched + parked + dead + shed + in flight",
                    "Totals since the pipeline began, from the ledgers.",
                    (
                        Query(each("dovetail_pipeline_taken_total", OF), "in"),
                        Query(each("dovetail_pipeline_copies_total", OF), "copies"),
                        Query(
                            f"sum by (outcome) ({each('dovetail_pipeline_events_total', OF)})",
                            "{{outcome}}",
                        ),
                        Query(each("dovetail_pipeline_in_flight_events", OF), "in flight"),
                    ),
                    kind=Kind.BARS,
                    width=12,
                ),
                Panel("Alerts", "That fire or are about to.", (), kind=Kind.ALERTS, width=12),
            ),
        ),
        Row(
            "Processes",
            (
                Panel(
                    "Heard",
                    "Green while a process sends heartbeats.",
                    (Query(each("dovetail_member_up", OF), "{{member}}"),),
                    *(Unit.YES, Kind.STATES, 12),
                    bounds=(1, 0.5),
                ),
                Panel(
                    "Ready",
                    "What each said of itself; /ready of a process says what it waits for.",
                    (Query(each("dovetail_member_ready", OF), "{{member}}"),),
                    *(Unit.YES, Kind.STATES, 12),
                    bounds=(1, 0.5),
                ),
                Panel(
                    "CPU",
                    "Cores that each process uses.",
                    (Query(rate("process_cpu_seconds_total", OF), PROCESS),),
                ),
                Panel(
                    "Resident memory",
                    "All of the process; what the join holds of it is on the node's dashboard.",
                    (Query(each("process_resident_memory_bytes", OF), PROCESS),),
                    Unit.BYTES,
                ),
                Panel(
                    "Records yet to read",
                    "Of each process's topics: events where it reads the source, else batches.",
                    (Query(each("dovetail_lag_records", OF), PROCESS),),
                ),
            ),
        ),
    ),
)

"""Jobs, cache plans, and the pipeline on Spark."""

from __future__ import annotations

from deploy.grafana.model import Dashboard, Kind, Panel, Query, Row, Unit
from deploy.grafana.queries import OF, each

DASHBOARD = Dashboard(
    "spark",
    "Spark",
    "The jobs' last runs, the cache plan, and `enrich` where Spark runs the pipeline.",
    (
        Row(
            "Jobs",
            (
                Panel(
                    "Last run",
                    "Its state; `lost` is one whose process died.",
                    (
                        Query(
                            f"{each('dovetail_spark_run_state', OF)} == 1",
                            "{{spark_job}} {{state}}",
                        ),
                    ),
                    *(Unit.YES, Kind.STATES, 12),
                ),
                Panel(
                    "Duration",
                    "Of the last run, or of the one under way.",
                    (Query(each("dovetail_spark_run_duration_seconds", OF), "{{spark_job}}"),),
                    Unit.SECONDS,
                    width=6,
                ),
                Panel(
                    "Since its start",
                    "How long ago the last run began.",
                    (
                        Query(
                            f"time() - {each('dovetail_spark_run_start_timestamp_seconds', OF)}",
                            "{{spark_job}}",
                        ),
                    ),
                    Unit.SECONDS,
                    width=6,
                ),
                Panel(
                    "Tasks",
                    "Of the run under way.",
                    (
                        Query(each("dovetail_spark_run_tasks", OF), "{{spark_job}}, all"),
                        Query(each("dovetail_spark_run_done_tasks", OF), "{{spark_job}}, done"),
                    ),
                ),
                Panel(
                    "Snapshot",
                    "Rows of the last version of R's files.",
                    (Query(each("dovetail_spark_run_rows", OF), "rows"),),
                ),
                Panel(
                    "Snapshot's size",
                    "Bytes of the last version of R's files.",
                    (Query(each("dovetail_spark_run_bytes", OF), "bytes"),),
                    Unit.BYTES,
                ),
            ),
        ),
        Row(
            "Cache plan",
            (
                Panel(
                    "Age",
                    "Since the latest plan was made, and since it was sent.",
                    (
                        Query(
                            f"time() - {each('dovetail_plan_made_timestamp_seconds', OF)}", "made"
                        ),
                        Query(
                            f"time() - {each('dovetail_plan_sent_timestamp_seconds', OF)}", "sent"
                        ),
                    ),
                    *(Unit.SECONDS, Kind.NUMBER, 6),
                    bounds=(43_200, 86_400),
                ),
                Panel(
                    "Version",
                    "Number of the latest plan.",
                    (Query(each("dovetail_plan_version", OF)),),
                    kind=Kind.NUMBER,
                    width=6,
                ),
                Panel(
                    "Keys",
                    "Planned, and sent because the caches lacked them.",
                    (
                        Query(each("dovetail_spark_run_planned_keys", OF), "planned"),
                        Query(each("dovetail_plan_sent_keys", OF), "sent"),
                        Query(each("dovetail_spark_run_evicted_keys", OF), "evicted"),
                    ),
                    kind=Kind.NUMBER,
                    width=12,
                ),
                Panel(
                    "Promised and had",
                    "The hit rate that the plan expects, and the one that the caches have.",
                    (
                        Query(each("dovetail_plan_expected_hit_ratio", OF), "expected"),
                        Query(each("pipeline:dovetail_cache_answers:ratio_rate1m", OF), "had"),
                    ),
                    Unit.SHARE,
                ),
                Panel(
                    "Counted",
                    "Records that were new in the last run; lost ones were gone before it.",
                    (
                        Query(each("dovetail_spark_run_new_records", OF), "new"),
                        Query(each("dovetail_spark_run_lost_records", OF), "lost"),
                        Query(each("dovetail_spark_run_counted_events", OF), "events in all"),
                    ),
                ),
                Panel(
                    "Where its time went",
                    "Counting, planning and sending.",
                    (
                        Query(each("dovetail_spark_run_count_seconds", OF), "counting"),
                        Query(each("dovetail_spark_run_plan_seconds", OF), "planning"),
                        Query(each("dovetail_spark_run_send_seconds", OF), "sending"),
                    ),
                    Unit.SECONDS,
                    stacked=True,
                ),
            ),
        ),
        Row(
            "enrich",
            (
                Panel(
                    "Events",
                    "Taken a second, where Spark runs the pipeline.",
                    (
                        Query(
                            each(
                                "pipeline_service_link_node:dovetail_taken:rate1m",
                                f'{OF}, service="enrich"',
                            ),
                            "in",
                        ),
                    ),
                    Unit.RATE,
                    spark=True,
                ),
                Panel(
                    "Last batch",
                    "How long it took.",
                    (Query(each("dovetail_batch_seconds", OF), "batch"),),
                    Unit.SECONDS,
                    spark=True,
                ),
                Panel(
                    "Events of the last batch",
                    "More a batch is more a second, and later.",
                    (Query(each("dovetail_batch_events", OF), "events"),),
                    spark=True,
                ),
                Panel(
                    "Run",
                    "Events of the run so far.",
                    (
                        Query(each("dovetail_spark_run_taken_events", OF), "in"),
                        Query(each("dovetail_spark_run_enriched_events", OF), "enriched"),
                        Query(each("dovetail_spark_run_unmatched_events", OF), "unmatched"),
                        Query(each("dovetail_spark_run_outputs", OF), "outputs"),
                    ),
                    spark=True,
                ),
            ),
        ),
    ),
)

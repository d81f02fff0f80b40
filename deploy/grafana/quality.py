"""What is wrong with the data that come in."""

from __future__ import annotations

from deploy.grafana.model import Dashboard, Kind, Panel, Query, Row, Unit
from deploy.grafana.queries import OF, PROCESS, each, rate

DASHBOARD = Dashboard(
    "quality",
    "data quality",
    "Bad events and why, events without a master row, what is late, shed or parked.",
    (
        Row(
            "Bad events",
            (
                Panel(
                    "Dead letters by reason",
                    "A second; the dead-letter topic has the events with their details.",
                    (
                        Query(
                            "sum by (reason) ("
                            + rate("dovetail_pipeline_events_total", f'{OF}, outcome="dead"')
                            + ")",
                            "{{reason}}",
                        ),
                    ),
                    Unit.RATE,
                    stacked=True,
                ),
                Panel(
                    "Share of bad events",
                    "Over five minutes; an alert from 5 % on.",
                    (Query(each("pipeline:dovetail_dead_letters:ratio_rate5m", OF), "bad"),),
                    Unit.SHARE,
                    bounds=(0.01, 0.05),
                ),
                Panel(
                    "Dead letters ever",
                    "By reason.",
                    (
                        Query(
                            each("dovetail_pipeline_events_total", f'{OF}, outcome="dead"')
                            + " > 0",
                            "{{reason}}",
                        ),
                    ),
                    kind=Kind.BARS,
                ),
            ),
        ),
        Row(
            "Master data",
            (
                Panel(
                    "Match rate",
                    "Of the latest events, those with a master row, and what is usual.",
                    (
                        Query(each("dovetail_match_ratio", OF), f"{PROCESS}, lately"),
                        Query(each("dovetail_match_usual_ratio", OF), f"{PROCESS}, usual"),
                    ),
                    Unit.SHARE,
                ),
                Panel(
                    "Alarm",
                    "The match rate has collapsed to less than a quarter of what is usual.",
                    (Query(each("dovetail_alarm", OF), PROCESS),),
                    *(Unit.YES, Kind.STATES),
                    bounds=(1, 1),
                ),
                Panel(
                    "Refused messages",
                    "On internal topics, and not the pipeline's: kept on the topic foreign.",
                    (Query(each("dovetail_refused_messages_total", OF), PROCESS),),
                ),
                Panel(
                    "Without output",
                    "Unmatched a second, and parked: keys with more rows than fit.",
                    (
                        Query(
                            "sum by (outcome) ("
                            + rate(
                                "dovetail_pipeline_events_total",
                                f'{OF}, outcome=~"unmatched|parked"',
                            )
                            + ")",
                            "{{outcome}}",
                        ),
                    ),
                    Unit.RATE,
                ),
            ),
        ),
        Row(
            "Time and load",
            (
                Panel(
                    "How late events come",
                    "By their own time, where the pipeline names it (`source.event_time`).",
                    tuple(
                        Query(
                            f"histogram_quantile({share}, sum by (le) ("
                            + rate("dovetail_event_time_lag_seconds_bucket", OF)
                            + "))",
                            name,
                        )
                        for share, name in ((0.5, "p50"), (0.99, "p99"))
                    ),
                    Unit.SECONDS,
                ),
                Panel(
                    "Shed by strategy",
                    "A second; they are on the shed topic, to be completed.",
                    (
                        Query(
                            "sum by (reason) ("
                            + rate("dovetail_pipeline_events_total", f'{OF}, outcome="shed"')
                            + ")",
                            "{{reason}}",
                        ),
                    ),
                    Unit.RATE,
                    stacked=True,
                ),
                Panel(
                    "Completed late",
                    "By backfill, a second: what was shed, unmatched or parked before.",
                    (
                        Query(
                            "sum by (outcome) ("
                            + rate("dovetail_pipeline_backfilled_events_total", OF)
                            + ")",
                            "{{outcome}}",
                        ),
                    ),
                    Unit.RATE,
                    stacked=True,
                ),
                Panel(
                    "By HTTP",
                    "Requests by answer, and the events in them.",
                    (
                        Query(rate("dovetail_http_requests_total", OF), "{{status}}"),
                        Query(rate("dovetail_http_events_total", OF), "events"),
                    ),
                    Unit.RATE,
                ),
            ),
        ),
    ),
)

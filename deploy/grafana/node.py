"""One node's work and its memory against its budget."""

from __future__ import annotations

from deploy.grafana.model import NODES, PIPELINE, Dashboard, Kind, Panel, Query, Row, Unit
from deploy.grafana.queries import NODE, PROCESS, each, rate

DASHBOARD = Dashboard(
    "node",
    "node",
    "One node, or some: what it does, and its memory against its budget.",
    (
        Row(
            "Memory",
            (
                Panel(
                    "Held by component",
                    "What each part of the phases holds, filled or not.",
                    (
                        Query(
                            each("dovetail_component_bytes"),
                            "{{component}}, " + NODE,
                        ),
                    ),
                    Unit.BYTES,
                    stacked=True,
                ),
                Panel(
                    "Held and budget",
                    "The budget is the pipeline's `memory`, of one process or both phases.",
                    (
                        Query(
                            f"sum by (link, node) ({each('dovetail_held_bytes')})", f"held, {NODE}"
                        ),
                        Query(
                            f"sum by (link, node) ({each('dovetail_budget_bytes')})",
                            f"budget, {NODE}",
                        ),
                    ),
                    Unit.BYTES,
                ),
                Panel(
                    "Share of the budget",
                    "Held over budget, by process. Above 1 is a fault.",
                    (Query(each("pipeline_service_link_node:dovetail_memory:ratio"), PROCESS),),
                    Unit.SHARE,
                    bounds=(1, 1.01),
                ),
                Panel(
                    "Room for pending events",
                    "How much of the join's memory is taken; near 1, no more events are let in.",
                    (Query(each("pipeline_link_node:dovetail_join_memory:ratio"), NODE),),
                    Unit.SHARE,
                    bounds=(0.8, 0.9),
                ),
                Panel(
                    "Resident memory",
                    "The whole process, interpreter and libraries included.",
                    (Query(each("process_resident_memory_bytes"), PROCESS),),
                    Unit.BYTES,
                ),
                Panel(
                    "Files and sockets",
                    "Open file descriptors.",
                    (Query(each("process_open_fds"), PROCESS),),
                ),
            ),
        ),
        Row(
            "Work",
            (
                Panel(
                    "Events taken",
                    "A second, by process.",
                    (Query(each("pipeline_service_link_node:dovetail_taken:rate1m"), PROCESS),),
                    Unit.RATE,
                ),
                Panel(
                    "What became of them",
                    "A second, by outcome, of the chosen nodes together.",
                    (
                        Query(
                            f"sum by (service, outcome) ({rate('dovetail_events_total')})",
                            "{{service}} {{outcome}}",
                        ),
                        Query(
                            f"sum by (service) ({rate('dovetail_outputs_total')})",
                            "{{service}} outputs",
                        ),
                    ),
                    Unit.RATE,
                ),
                Panel(
                    "CPU",
                    "Cores.",
                    (Query(rate("process_cpu_seconds_total"), PROCESS),),
                ),
                Panel(
                    "Step, p99",
                    "From its first to its last call, commit included.",
                    (
                        Query(
                            each("pipeline_service_link_node:dovetail_step_seconds:p99_1m"),
                            PROCESS,
                        ),
                    ),
                    Unit.SECONDS,
                ),
                Panel(
                    "Steps",
                    "Transactions a second.",
                    (Query(rate("dovetail_step_seconds_count"), PROCESS),),
                    Unit.RATE,
                ),
                Panel(
                    "Records yet to read",
                    "Of the process's own partitions.",
                    (Query(each("dovetail_lag_records"), PROCESS),),
                ),
                Panel(
                    "Latency",
                    "Outputs by how long they took.",
                    (
                        Query(
                            f"sum by (le) ({rate('dovetail_latency_seconds_bucket')})",
                            "{{le}}",
                        ),
                    ),
                    kind=Kind.HEAT,
                    width=12,
                ),
                Panel(
                    "Ready",
                    "1 while the process has partitions and all it needs.",
                    (Query(each("dovetail_ready"), PROCESS),),
                    *(Unit.YES, Kind.STATES, 12),
                    bounds=(1, 0.5),
                ),
            ),
        ),
    ),
    (PIPELINE, NODES),
)

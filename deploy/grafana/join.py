"""The cache, the disk phase and the spread over slots from within."""

from __future__ import annotations

from deploy.grafana.model import NODES, PIPELINE, Dashboard, Kind, Panel, Query, Row, Unit
from deploy.grafana.queries import AT, NODE, OF, each, rate

DASHBOARD = Dashboard(
    "join",
    "join internals",
    "What the cache holds and why, how R is read, and how events are spread.",
    (
        Row(
            "Cache phase",
            (
                Panel(
                    "Hit rate",
                    "Lookups in the cache that found an entry.",
                    (Query(each("pipeline_link_node:dovetail_cache_hits:ratio_rate1m"), NODE),),
                    Unit.SHARE,
                ),
                Panel(
                    "Hits and misses",
                    "A second.",
                    (
                        Query(rate("dovetail_cache_hits_total"), f"hits, {NODE}"),
                        Query(rate("dovetail_cache_misses_total"), f"misses, {NODE}"),
                    ),
                    Unit.RATE,
                ),
                Panel(
                    "Keys in the cache",
                    "Those without any master row included.",
                    (Query(each("dovetail_cache_keys"), NODE),),
                ),
                Panel(
                    "Bytes in use",
                    "Of the cache's part of the budget, what holds entries.",
                    (
                        Query(each("dovetail_cache_used_bytes"), f"used, {NODE}"),
                        Query(
                            each("dovetail_component_bytes", f'{AT}, component="cache"'),
                            f"cache, {NODE}",
                        ),
                    ),
                    Unit.BYTES,
                ),
                Panel(
                    "Keys that come and go",
                    "Migrations that arrived, evictions, keys not worth a place, deletions told.",
                    (
                        Query(rate("dovetail_cache_migrations_total"), f"arrived, {NODE}"),
                        Query(rate("dovetail_cache_evictions_total"), f"evicted, {NODE}"),
                        Query(rate("dovetail_cache_refusals_total"), f"refused, {NODE}"),
                        Query(rate("dovetail_cache_tombstones_total"), f"deleted, {NODE}"),
                    ),
                    Unit.RATE,
                ),
                Panel(
                    "Oldest rows",
                    "Age of the oldest rows in the cache, which `master.refresh` bounds.",
                    (Query(each("dovetail_cache_oldest_age_seconds"), NODE),),
                    Unit.SECONDS,
                ),
                Panel(
                    "Rebuilt",
                    "After a start or a move of slots, how much of the cache is loaded again.",
                    (Query(each("dovetail_cache_loaded_ratio"), NODE),),
                    Unit.SHARE,
                ),
                Panel(
                    "Algorithm",
                    "Which one runs; `auto` says why in the log, and on the console.",
                    (Query(each("dovetail_algorithm_info"), "{{algorithm}}, " + NODE),),
                    *(Unit.YES, Kind.STATES),
                ),
                Panel(
                    "Promised rate",
                    "What the running algorithm promises by the cost model; `auto` only.",
                    (Query(each("dovetail_promised_events_per_second"), f"promised, {NODE}"),),
                    Unit.RATE,
                ),
            ),
        ),
        Row(
            "Disk phase",
            (
                Panel(
                    "Pending events",
                    "In the join, and from the oldest that waits to the newest (the window).",
                    (
                        Query(each("dovetail_pending_events"), f"pending, {NODE}"),
                        Query(each("dovetail_window_events"), f"window, {NODE}"),
                        Query(each("dovetail_window_capacity_events"), f"capacity, {NODE}"),
                    ),
                ),
                Panel(
                    "Pending bytes",
                    "Events that wait, and the rows collected for them.",
                    (
                        Query(each("dovetail_pending_bytes"), f"events, {NODE}"),
                        Query(each("dovetail_collected_bytes"), f"rows, {NODE}"),
                        Query(
                            each("dovetail_component_bytes", f'{AT}, component="pool"'),
                            f"room, {NODE}",
                        ),
                    ),
                    Unit.BYTES,
                ),
                Panel(
                    "Batches without room",
                    "Read from Kafka and not let in yet; while there are some, no more are read.",
                    (Query(each("dovetail_held_batches"), NODE),),
                ),
                Panel(
                    "Reads of R",
                    "A second: pages, a partition, or the rows of keys at a time.",
                    (
                        Query(rate("dovetail_master_reads_total"), f"reads, {NODE}"),
                        Query(rate("dovetail_master_queries_total"), f"queries, {NODE}"),
                    ),
                    Unit.RATE,
                ),
                Panel(
                    "Queries a thousand events",
                    "What the pipeline asks of the database; one by one it would be a thousand.",
                    (
                        Query(
                            f"1000 * sum({rate('dovetail_master_queries_total', OF)})"
                            f" / sum({rate('dovetail_pipeline_taken_total', OF)})",
                            "queries",
                        ),
                    ),
                ),
                Panel(
                    "Master rows read",
                    "A second.",
                    (Query(rate("dovetail_master_rows_total"), NODE),),
                    Unit.RATE,
                ),
                Panel(
                    "b and w",
                    "b: pages, partitions or keys a read. w: events let in for each read.",
                    (
                        Query(
                            f"{rate('dovetail_master_read_units_total')}"
                            f" / {rate('dovetail_master_reads_total')}",
                            f"b, {NODE}",
                        ),
                        Query(
                            f"{rate('dovetail_join_events_total')}"
                            f" / {rate('dovetail_master_reads_total')}",
                            f"w, {NODE}",
                        ),
                    ),
                ),
                Panel(
                    "Where the scan is",
                    "The next page, b, and how many R has; of algorithms that scan.",
                    (
                        Query(each("dovetail_scan_page"), f"at, {NODE}"),
                        Query(each("dovetail_scan_pages"), f"b, {NODE}"),
                        Query(each("dovetail_master_pages"), f"pages, {NODE}"),
                    ),
                ),
                Panel(
                    "Cycles, migrations, choices",
                    "Cycles a second, keys sent to the cache, and `auto`'s choices.",
                    (
                        Query(rate("dovetail_cycles_total"), f"cycles, {NODE}"),
                        Query(rate("dovetail_migrations_total"), f"migrations, {NODE}"),
                        Query(rate("dovetail_algorithm_choices_total"), f"choices, {NODE}"),
                    ),
                    Unit.RATE,
                ),
            ),
        ),
        Row(
            "Slots and shedding",
            (
                Panel(
                    "Slots",
                    "Events to each slot; a slot's events are all one node's.",
                    (
                        Query(
                            f"sum by (slot) ({each('dovetail_slot_events_per_second', OF)})",
                            "slot {{slot}}",
                        ),
                    ),
                    Unit.RATE,
                    stacked=True,
                ),
                Panel(
                    "Skew",
                    "The busiest slot over the mean: 1 is even. Of fused nodes the highest.",
                    (Query(f"max({each('dovetail_slot_skew_ratio', OF)})", "skew"),),
                ),
                Panel(
                    "Shedding",
                    "How far behind the phases are, where the pipeline allows shedding.",
                    (
                        Query(f"max({each('dovetail_behind_seconds', OF)})", "behind"),
                        Query(f"max({each('dovetail_shedding', OF)})", "sheds"),
                    ),
                    Unit.SECONDS,
                ),
                Panel(
                    "Arrivals and service",
                    "What shedding goes by: events that arrive, and misses that are answered.",
                    (
                        Query(f"sum({each('dovetail_arrival_events_per_second', OF)})", "arrive"),
                        Query(f"sum({each('dovetail_service_events_per_second', OF)})", "answered"),
                    ),
                    Unit.RATE,
                ),
            ),
        ),
    ),
    (PIPELINE, NODES),
)

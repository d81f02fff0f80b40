"""A node of a semi-stream join: its cache phase, its disk phase, and what both need around them.

    batches ──► cache half ──hits──────────────────────► parts of a step
                   │ misses         ▲ migrations
                   ▼                │
                disk half ◄── reads of R ──────────────► parts of a step

It is handed batches and says what came of them as values (step.py): outputs, letters, migrations,
progress and counts, in bounded pieces. Whoever drives it writes them, in one transaction a step;
it knows no producer, no consumer and no ledger. Its drivers are the services of the two phases,
`enrich` and `backfill` on Spark.
"""

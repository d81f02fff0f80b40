"""The cache plan's arithmetic: who should be cached, from counts of the past. No Spark, no I/O.

    events ──► counting ──► per key and hour of the week: events, weight
                                │  recency: rates
    R ──► rows and bytes ──► ranking ──► cut ──► the plan

The Spark job `frequency` (services/spark/frequency.py) drives it over whole histories.
"""

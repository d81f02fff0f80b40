"""How much master data each key has: rows, and their bytes as the output will have them.

The database encodes a row to say how long it is; only its key and the length travel.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from dovetail.pipeline.spec import KeyType
from services.spark.master import master_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from dovetail.pipeline.spec import Pipeline

_LENGTHS = "SELECT place, slot, value, text, octet_length(row)::int8 AS row FROM ({}) AS rows"


@contextmanager
def master_sizes(spark: SparkSession, database_url: str, pipeline: Pipeline) -> Iterator[DataFrame]:
    """`key`, `rows` and `row_bytes` of every key that has master rows, as of one moment."""
    with master_state(database_url, pipeline) as state:
        lengths = replace(state, query=_LENGTHS.format(state.query)).rows(spark)
        key = "value" if pipeline.key_type is KeyType.INT else "cast(text AS binary)"
        sizes = lengths.selectExpr(f"{key} AS key", "row AS length").groupBy("key")
        # Where only whether there is a row is asked, the first one serves for all.
        rows = sf.count("*") if pipeline.join.takes_columns else sf.lit(1).cast("bigint")
        yield sizes.agg(rows.alias("rows"), sf.sum("length").alias("row_bytes"))

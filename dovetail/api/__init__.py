"""The join as a Python function: Arrow batches in, Arrow batches out.

    from dovetail.api import Postgres, join

    products = Postgres("postgresql://localhost/shop", "products")
    for batch in join(sales, products, on={"product_id": "id"}, how="left", memory="64MiB"):
        write(batch)

    prices = join(sales, "prices.parquet", on="product_id",
                  condition=between("sold_at", "valid_from", "valid_to", ends="[)"))

The master data is a Parquet file, an Arrow table, a PostgreSQL table or whatever has the methods
of `Relation`. It is never held: the algorithm says what to read next, and all that waits
meanwhile, cached rows included, takes no more than `memory` bytes.
"""

from dovetail.api.conditions import (
    Condition,
    at_least,
    at_most,
    between,
    contains,
    greater_than,
    less_than,
    overlaps,
)
from dovetail.api.joining import join
from dovetail.api.pieces import ArrowTable, ParquetFile, Pieces
from dovetail.api.postgres import Postgres
from dovetail.api.source import Relation, Source

__all__ = [
    "ArrowTable",
    "Condition",
    "ParquetFile",
    "Pieces",
    "Postgres",
    "Relation",
    "Source",
    "at_least",
    "at_most",
    "between",
    "contains",
    "greater_than",
    "join",
    "less_than",
    "overlaps",
]

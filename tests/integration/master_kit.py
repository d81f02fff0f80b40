"""Pipelines, keys and rows for tests of master data."""

from __future__ import annotations

import numpy as np

from dovetail.join.columns import Column, JoinKeys
from dovetail.join.keys import SEPARATOR, hash_text_many
from dovetail.pipeline.spec import Pipeline


def pipeline(table, columns, fields=None, key="id", join="inner", master_key=None, slots=8):
    return Pipeline.model_validate(
        {
            "name": "test",
            "source": {"fields": fields or {"id": "int", "amount_sold": "decimal"}},
            "key": key,
            "master": {
                "table": table,
                "columns": columns,
                **({"key": master_key} if master_key else {}),
            },
            "join": join,
            "slots": slots,
        }
    )


def ints(*keys):
    return JoinKeys.of_ints(np.array(keys, np.int64))


def texts(*keys):
    column = Column.of([key.encode() for key in keys])
    return JoinKeys(hash_text_many(column.data, column.bounds), column)


def composites(*keys):
    return texts(*(chr(SEPARATOR).join(map(str, parts)) for parts in keys))


def found(rows):
    """(key, row) pairs in an order of their own, because PostgreSQL gives them in none."""
    names = [text.decode() for text in rows.keys.texts]
    keys = names if any(names) else rows.keys.values.tolist()
    pairs = [(key, row.decode()) for key, row in zip(keys, rows.rows, strict=True)]
    return sorted(pairs, key=str)

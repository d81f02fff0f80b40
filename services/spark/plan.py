"""A cache plan out of counts and master data: ranked, cut, stored, and sent to the caches."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions as sf

from dovetail.errors import ConfigError
from dovetail.join.algorithms import policy_named
from dovetail.join.policies import Inequality, NoCache
from dovetail.join.pool import BYTES_A_BLOCK
from dovetail.join.worth import AT_A_TIME
from dovetail.pipeline.spec import Algorithm, KeyType
from dovetail.plan.ranking import Terms, Verdict
from dovetail.plan.recency import watched_s
from dovetail.plan.room import cache_blocks, event_blocks, slot_blocks
from dovetail.stream.key_names import names_of
from services.cache_phase.settings import budget
from services.disk_phase.build import factors_of
from services.disk_phase.settings import shares
from services.spark.frequency_worker import JUDGED, PLANNED, cut, judged, key_type, keys_in
from services.spark.plan_sending import Part
from services.spark.plan_tables import PlanKey
from services.spark.relation import relation_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from dovetail.join.columns import Column, JoinKeys
    from dovetail.pipeline.spec import Pipeline
    from dovetail.settings import Settings
    from services.spark.frequency_state import Version

LEAST_BLOCKS = 2
"""The smallest entry, with its record."""
LISTED = 100_000
"""Chosen keys that are listed in the control database, and a hundredth of it for each reason of
those left out."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """Over what time events count for a plan, and why (dovetail/plan/ranking.py)."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a plan is made for, and the figures it follows from."""

    hour: int | None
    """Of the week; None: for any."""
    watched_s: float
    """The faded seconds in which that was seen."""
    terms: Terms
    horizon: Horizon


@dataclass(frozen=True, slots=True)
class Plan:
    folder: str
    facts: dict[str, Any]
    """What the API shows of it."""

    @property
    def keys(self) -> int:
        return int(self.facts["keys"].get(Verdict.CHOSEN, 0))


def has_cache(pipeline: Pipeline) -> bool:
    return not isinstance(policy_named(pipeline.algorithm), NoCache)


def purpose_of(
    settings: Settings,
    pipeline: Pipeline,
    version: Version,
    half_life_s: float,
    hour: int | None,
    horizon_s: float | None,
) -> Purpose:
    counts = version.counts
    seen_s = watched_s(counts.began_ms, counts.as_of_ms, half_life_s, hour)
    if seen_s < 1.0:
        if hour is None:
            raise ConfigError("all counted events are of one moment: no rate follows from them")
        raise ConfigError(
            f"no event was counted in hour {hour} of a week yet: make the plan without --hour, or "
            f"count an archive of at least a week"
        )
    horizon = (
        _horizon(settings, pipeline, version, half_life_s)
        if horizon_s is None
        else Horizon(horizon_s, "as given")
    )
    memory = budget(pipeline)
    terms = Terms(
        horizon.seconds,
        event_blocks(counts.event_bytes),
        cache_blocks(memory),
        slot_blocks(memory, pipeline.slots, pipeline.nodes),
    )
    return Purpose(hour, seen_s, terms, horizon)


def _horizon(
    settings: Settings, pipeline: Pipeline, version: Version, half_life_s: float
) -> Horizon:
    if not isinstance(policy_named(pipeline.algorithm), Inequality):
        if math.isfinite(pipeline.master.refresh):
            return Horizon(pipeline.master.refresh, "until master rows are read anew")
        return Horizon(half_life_s, "the half-life, as rows are never read anew")
    relation = relation_of(settings, pipeline)
    try:
        facts = relation.facts
    finally:
        relation.close()
    if pipeline.algorithm is Algorithm.SSBJ:
        waits = AT_A_TIME * facts.pages * factors_of(pipeline).page
        return Horizon(waits, "an event's wait in a scan of the master table, on average")
    counts = version.counts
    rate = counts.events / max(1.0, (counts.as_of_ms - counts.began_ms) / 1000)
    events = shares(pipeline).join / (event_blocks(counts.event_bytes) * BYTES_A_BLOCK)
    return Horizon(AT_A_TIME * events / rate, "an event's wait where as many wait as fit")


def make_plan(
    pipeline: Pipeline,
    pairs: DataFrame,
    sizes: DataFrame,
    purpose: Purpose,
    folder: str,
) -> Plan:
    """Write a plan with all keys that it judges into the folder."""
    terms = purpose.terms
    if purpose.hour is not None:
        pairs = pairs.where(sf.col("hour") == purpose.hour)
    weighed = pairs.groupBy("key").agg(sf.sum("weight").alias("weight"))
    # No entry is smaller than that, so nobody below can satisfy the inequality.
    least = LEAST_BLOCKS * purpose.watched_s / (terms.horizon_s * terms.event_blocks)
    hopeful = weighed.where(sf.col("weight") > least).join(sizes, "key", "left")
    key = f"key {key_type(pipeline)}"
    ranked = hopeful.fillna(0, ["rows", "row_bytes"]).mapInArrow(
        partial(judged, pipeline, terms, purpose.watched_s), f"{key}, {JUDGED}"
    )
    decided = (
        ranked.repartition("slot")
        .sortWithinPartitions((sf.col("fits") & sf.col("pays")).desc(), sf.desc("worth"), "key")
        .mapInArrow(partial(cut, pipeline.slots, terms.slot_blocks), f"{key}, {PLANNED}")
    )
    decided.write.parquet(folder)
    judged_keys = pairs.sparkSession.read.parquet(folder)
    return Plan(folder, {**_facts(pipeline, purpose, judged_keys, weighed), "folder": folder})


def _facts(
    pipeline: Pipeline, purpose: Purpose, decided: DataFrame, weighed: DataFrame
) -> dict[str, Any]:
    found = (
        decided.groupBy("verdict")
        .agg(sf.count("*").alias("n"), sf.sum("rate").alias("rate"), sf.sum("blocks").alias("b"))
        .collect()
    )
    keys = {str(verdict): 0 for verdict in Verdict} | {row.verdict: row.n for row in found}
    every = weighed.agg(sf.count("*"), sf.sum("weight")).first()
    assert every is not None, "a total is one row"
    keys[Verdict.INEQUALITY] += every[0] - sum(keys.values())
    chosen = next((row for row in found if row.verdict == Verdict.CHOSEN), None)
    rate = (every[1] or 0.0) / purpose.watched_s
    return {
        "hour": purpose.hour,
        "algorithm": str(pipeline.algorithm),
        "horizon": asdict(purpose.horizon),
        "watched_s": purpose.watched_s,
        "event_bytes": purpose.terms.event_blocks * BYTES_A_BLOCK,
        "cache_bytes": budget(pipeline),
        "slot_bytes": purpose.terms.slot_blocks * BYTES_A_BLOCK,
        "events_a_second": rate,
        "expected_hit_rate": chosen.rate / rate if chosen and rate else 0.0,
        "bytes": chosen.b * BYTES_A_BLOCK if chosen else 0,
        "keys": keys,
    }


def listed(spark: SparkSession, pipeline: Pipeline, plan: Plan) -> Iterator[PlanKey]:
    """The keys to be listed, each with its reason."""
    frame = spark.read.parquet(plan.folder)
    for verdict in Verdict:
        most = LISTED if verdict is Verdict.CHOSEN else LISTED // 100
        some = frame.where(sf.col("verdict") == str(verdict)).orderBy(sf.desc("worth"), "key")
        table = some.limit(most).toArrow()
        names = _names(keys_in(table.column("key")), pipeline)
        columns = (table.column(name).to_pylist() for name in ("slot", "events", "rows", "blocks"))
        worth = table.column("worth").to_pylist()
        for row in zip(names, *columns, worth, strict=True):
            name, slot, events, rows, blocks, of_byte = row
            yield PlanKey(name, slot, events, rows, blocks * BYTES_A_BLOCK, of_byte, str(verdict))


def chosen(spark: SparkSession, pipeline: Pipeline, plan: Plan) -> list[Part]:
    """The chosen keys by slot."""
    frame = spark.read.parquet(plan.folder).where(sf.col("verdict") == str(Verdict.CHOSEN))
    # A cache without room refuses who comes last, or evicts who came first.
    refuses = isinstance(policy_named(pipeline.algorithm), Inequality)
    order = sf.desc("worth") if refuses else sf.asc("worth")
    table = frame.orderBy("slot", order).select("slot", "key", "events", "blocks").toArrow()
    every = Part(
        -1,
        keys_in(table.column("key")),
        np.ceil(table.column("events").to_numpy()).astype(np.int64),
        table.column("blocks").to_numpy().astype(np.int64),
    )
    slots = table.column("slot").to_numpy()
    return [
        replace(every.take(np.flatnonzero(slots == slot)), slot=slot)
        for slot in range(pipeline.slots)
    ]


def _names(keys: JoinKeys, pipeline: Pipeline) -> Column:
    return names_of(keys, int_key=pipeline.key_type is KeyType.INT)

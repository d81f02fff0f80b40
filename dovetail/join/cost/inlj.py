"""INLJ: one read through the index for each event. The baseline of MESHJOIN and HYBRIDJOIN.

HYBRIDJOIN's Figure 8c holds a prediction against measurements but the text gives no formula;
by its Theorem 2, a constant number of accesses an event, it is

    M = v_P,   1/μ = c_I/O(1) + (v_P/v_R)·c_H + c_S + c_O

A buffer pool, which MESHJOIN's experiments give it, is not modelled: more memory does not help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.join.cost.factors import Factors, Work
from dovetail.join.cost.plan import Parts, Plan, require_memory, require_rate

if TYPE_CHECKING:
    from dovetail.join.cost.workload import Workload


def loop(workload: Workload) -> Work:
    """What one event takes."""
    return Work(
        seek=1,
        page=1,
        step=1,
        match=workload.rows_a_page,
        take=1,
        output=workload.popularity.matches,
    )


def least_memory(workload: Workload, factors: Factors, arrivals: float) -> Plan:
    plan = _plan(workload, factors)
    require_rate(arrivals, plan.rate)
    return plan


def highest_rate(workload: Workload, factors: Factors, budget: float) -> Plan:
    plan = _plan(workload, factors)
    require_memory(budget, plan.memory)
    return plan


def _plan(workload: Workload, factors: Factors) -> Plan:
    parts = Parts(pending=workload.event_bytes, disk_buffer=workload.buffer_bytes)
    reason = "one read of R an event, whatever the memory"
    return Plan(1 / factors.by_turns(loop(workload)), parts, 1, 1, 0.0, reason)

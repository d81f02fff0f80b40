"""OPTOFFLINESHED: the least loss that any strategy can have on a stream (MESHJOIN §4.2).

It knows the whole stream, so nobody can run it: it says how good the others are (Theorem 4.1).
One event arrives at each tick. The join asks for its next w events c_loop ticks after it was
last given some; they may be given later than that (a stall), when all w places are filled.

    optloss(i, lt, sb)   the least loss from event i on; asked at tick lt; sb places filled

    sb < w            the smaller of: keep i,  optloss(i + 1, lt, sb + 1)
                                      shed i,  optloss(i + 1, lt, sb) + f_R(i)
    sb = w, i < lt    shed i:                  optloss(i + 1, lt, w) + f_R(i)
    sb = w, i ≥ lt    hand over:               optloss(i, i + c_loop, 0)

Events that wait when the stream ends are joined all the same.

Only how long it is until lt matters, not lt itself: a table over that wait, 0 to c_loop, takes
O(|S| · c_loop · w) steps instead of the paper's O(|S|² · w). (Fig. 9 differs from the paper's own
equations in line 11, where f_R(i) is missing: the equations are followed here.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dovetail.join.shedding.frequency import Floats


def optimal_loss(frequencies: Floats, w: int, c_loop: int, first_request: int = 0) -> float:
    """The fewest result rows that can be lost, if event i has `frequencies[i]` of them.

    The join first asks at tick `first_request`: 0 in the paper's algorithm, c_loop if a loop is
    under way when the stream starts.
    """
    loss = np.zeros((max(c_loop, first_request) + 1, w + 1))
    for frequency in reversed(frequencies):
        # The wait is one tick shorter at the next event, and never below none.
        later = np.concatenate([loss[:1], loss[:-1]])
        loss = np.empty_like(later)
        loss[:, :w] = np.minimum(later[:, 1:], later[:, :w] + frequency)
        loss[1:, w] = later[1:, w] + frequency
        loss[0, w] = loss[c_loop, 0]
    return float(loss[first_request, 0])

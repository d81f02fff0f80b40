"""Range conditions: the event's interval overlaps the master row's (MESHJOIN §3.4).

conditions.py  what users ask for, each as two intervals that overlap
exchange.py    what goes in and comes out
engine.py      the join: as `Engine`, for intervals
window.py      everything pending, in one buffer
pending.py     events that enter and leave it
index.py       events by where their intervals start, with how far they reach
matching.py    one read against everything pending
"""

"""Shedding: which events go on when more arrive than the join can serve (MESHJOIN §4).

buffer.py      the working buffer: w events a loop, the rest handed back as shed
strategies.py  keep-w, sample-w, TOPW, cluster sampling: each is a priority
choice.py      which strategy serves which relationship and criterion
frequency.py   f_R, learnt from what the disk phase has answered, or counted beforehand
line.py        how long an event waits in front of a stage
shedder.py     when a pipeline sheds and how much, by its phases' service rates
optimal.py     the loss of the best strategy that knows the future, as a yardstick
"""

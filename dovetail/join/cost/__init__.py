"""What a join costs, in bytes and in seconds, before it runs: the papers' models and their tuning.

    factors     seconds an operation takes here; refined while a join runs
    popularity  which share of the events falls on which master rows (zipf.py: a law; or counts)
    workload    the figures of R and S that every model needs
    plan        a model's answer: rate, bytes by part, the reason
    meshjoin  hybridjoin  ssbj  pcsrj  srj  inlj    one model each, equations by the papers' numbers
    sizing      how much memory for this rate, which rate in this memory, which algorithm
    measure     the factors of this machine
    command     `dovetail size`

Every model answers the same two questions, `least_memory(workload, factors, rate)` and
`highest_rate(workload, factors, memory)`, and the two answers are each other's inverse. The
models are pure: they read nothing, and the clock that `measure` needs is passed in.
"""

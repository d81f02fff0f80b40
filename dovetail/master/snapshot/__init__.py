"""R as local files: written once by a job, scanned and looked up by every node.

    write_snapshot ──► folder: manifest.json, pages, keys, rows, … ──► SnapshotRelation

manifest.py says what is there; writer.py makes it, order.py and split.py sort and split for it.
index.py knows what each page starts with, place.py which bytes it is, files.py reads those past
the page cache, fill.py makes master rows of them. scan.py reads pages, lookup.py partitions and
keys, of which pick.py keeps the rows; relation.py is what the join engine's driver talks to.

slots.py reads several slots' snapshots as one R. versions.py keeps a pipeline's versions apart, and
current.py reads the current one, whichever it is by then.
"""

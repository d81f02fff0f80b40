"""The oracle: what SQL makes of the same events, compared with what the pipeline gave out.

1. Read every event of the source topic, transcode it event by event if it is not JSON
   (`formats`, `avro`, `protobuf`), and judge it with Python's own json module (`judge`).
2. Copy the good ones into PostgreSQL; the pipeline's join is one statement there (`join`).
3. Copy every output beside them, each with the identity of its event (`copying`, `reading`).
4. Set aside what was shed or parked and not completed by backfill yet: such an event must not have
   any output. Of what backfill has looked at, only the outputs count, what is still unmatched, and
   what stays parked because an output is too large.
5. Let SQL subtract one multiset from the other; the same for `unmatched`. Dead letters are
   compared by bytes (`oracle`).

Nothing here shares code with the pipeline's decoder, cache, lookups or splice.
"""

from dovetail.stream.whole import read_all
from dovetail.verify.judge import Judge
from dovetail.verify.oracle import Verdict, verify
from dovetail.verify.reading import Ends, ends_of, headers_of

__all__ = ["Ends", "Judge", "Verdict", "ends_of", "headers_of", "read_all", "verify"]

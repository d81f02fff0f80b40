"""The image's health check: ends with 0 if the service in this container answers, else with 1.

`health` asks whether it lives, `health /ready` whether it has all it needs.
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.error
import urllib.request

from dovetail.service import tls

_WITHIN_S = 4.0


def main(words: list[str] = sys.argv[1:]) -> int:
    path = words[0] if words else "/health"
    url = f"{tls.scheme()}://127.0.0.1:{os.environ.get('DOVETAIL_PORT', '8080')}{path}"
    # A proxy of the environment's is not for this machine; and its certificate names another host.
    unchecked = ssl._create_unverified_context()  # noqa: S323, SLF001 - it asks itself
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unchecked)
    )
    try:
        with opener.open(url, timeout=_WITHIN_S) as answer:
            print(answer.read(500).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        print(error.read(500).decode(errors="replace"))
        return 1
    except OSError as error:
        print(f"{url}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the dashboards' queries have in common: whose figures, by what they are called."""

from __future__ import annotations

OF = 'pipeline="$pipeline"'
AT = f'{OF}, node=~"$node"'
PROCESS = "{{service}} {{link}} {{node}}"
NODE = "node {{node}}, table {{link}}"


def rate(metric: str, labels: str = AT) -> str:
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def each(metric: str, labels: str = AT) -> str:
    return f"{metric}{{{labels}}}"

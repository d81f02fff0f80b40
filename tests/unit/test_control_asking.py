from __future__ import annotations

import io
from email.message import Message
from urllib.error import HTTPError

import pytest

from services.control.asking import _why


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"detail": "a step takes long"}', ": a step takes long"),
        (b"{}", ""),
        (b"[]", ""),
        (b"<html>", ""),
        (b"", ""),
    ],
)
def test_a_refusal_is_told_with_its_reason(body, told):
    refusal = HTTPError("http://node", 503, "Service Unavailable", Message(), io.BytesIO(body))
    assert _why(refusal) == told

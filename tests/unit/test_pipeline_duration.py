from __future__ import annotations

import pytest

from dovetail.pipeline.duration import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("500ms", 0.5), ("10m", 600), ("1.5h", 5400), (" 2 d ", 172_800), ("3S", 3)],
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("30", "'30' is not a duration; write a number and a unit, e.g. 30s or 10m"),
        ("soon", "'soon' is not a duration; write a number and a unit, e.g. 30s or 10m"),
        ("-1s", "'-1s' is not a duration; write a number and a unit, e.g. 30s or 10m"),
        ("5min", "'5min' has an unknown unit; write 5m"),
        ("5 minutes", "'5 minutes' has an unknown unit; write 5m"),
        ("2 hours", "'2 hours' has an unknown unit; write 2h"),
        ("7x", "'7x' has an unknown unit; write 7s"),
    ],
)
def test_what_is_no_duration_is_told_with_a_cure(text: str, told: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared below
        parse_duration(text)
    assert str(caught.value) == told


@pytest.mark.parametrize("text", ["1d", "36h", "90m", "30s", "1500ms", "0.5ms"])
def test_a_duration_is_shown_as_it_would_be_written(text: str) -> None:
    assert format_duration(parse_duration(text)) == text
